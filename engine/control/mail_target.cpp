#include "engine/control/mail_target.h"

#include <chrono>

#include "engine/control/futex.h"

namespace uprobe::control {
namespace {

using shared::MailState;
using namespace std::chrono_literals;

constexpr auto kPatience = 2s;  // a target that is stopped or killed meanwhile does not hold us longer

}  // namespace

Result<std::uint64_t> command_by_mail(shared::MailSlot& slot, const std::array<std::uint64_t, 7>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) slot.command[i] = words[i];
  auto expected = static_cast<std::uint32_t>(MailState::working);
  const auto posted = static_cast<std::uint32_t>(MailState::command);
  if (!__atomic_compare_exchange_n(&slot.state, &expected, posted, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    return Error{.code = Code::system, .text = "the waiting thread gave up"};
  futex_wake(slot.state);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const auto finished = static_cast<std::uint32_t>(MailState::result);
  for (;;) {
    std::uint32_t state = __atomic_load_n(&slot.state, __ATOMIC_ACQUIRE);
    if (state == finished) break;
    if (state != posted || std::chrono::steady_clock::now() > deadline)
      return Error{.code = Code::system, .text = "the waiting thread does not answer"};
    futex_wait(slot.state, state, 50ms);
  }
  const std::uint64_t result = slot.result;
  auto seen = finished;
  const auto working = static_cast<std::uint32_t>(MailState::working);
  if (!__atomic_compare_exchange_n(&slot.state, &seen, working, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    return Error{.code = Code::system, .text = "the waiting thread gave up"};
  return result;
}

Result<std::int64_t> MailTarget::system_call(long number, const std::array<std::uint64_t, 6>& a) {
  auto result = command_by_mail(slot_, {static_cast<std::uint64_t>(number), a[0], a[1], a[2], a[3], a[4], a[5]});
  if (!result) return result.error();
  return static_cast<std::int64_t>(*result);
}

Result<std::uint64_t> MailTarget::call(Addr function) {
  return command_by_mail(slot_, {shared::kCallFunction, function.value, 0, 0, 0, 0, 0});
}

}  // namespace uprobe::control
