// SPDX-License-Identifier: MIT
#include "engine/mailbox/conversation.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "engine/base/procfs.h"
#include "engine/mailbox/futex.h"
#include "engine/target/process_list.h"

namespace uprobe::control {
namespace {

using shared::MailSlot;
using shared::MailState;
using shared::Turn;
using namespace std::chrono_literals;

constexpr auto kPatience = 2s;                    // a target that does not answer delays the tool no longer
constexpr auto kOfStopped = 100ms;                // nor a stopped one; it may be continued at once
constexpr auto kFirstLook = 60ms;                 // how a thread runs from here on shows whether it is silent
constexpr std::chrono::nanoseconds kMuch = 15ms;  // of a processor's time, for a command; most take microseconds
constexpr auto kLastWord = 100ms;                 // for a thread that is giving up
constexpr auto kLook = 20ms;                      // another process may take a bell away

bool is_before(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t distance = shared::number_after(b, ~a + 1);
  return distance != 0 && distance < 1u << 27;
}

}  // namespace

bool has_request(const MailSlot& slot) {
  return slot.asked.word == slot.asked.check && shared::state_of(slot.asked.word) == MailState::request &&
         is_before(shared::number_of(slot.answered.word), shared::number_of(slot.asked.word));
}

void PrivateLine::wake() {
  std::uint32_t& word = area_.header().notices[called_ % shared::kNotices].wake;
  __atomic_fetch_add(&word, 1, __ATOMIC_RELEASE);
  futex_wake(word);
}

std::uint32_t PrivateLine::rung() {
  return __atomic_load_n(&area_.live(part_).header().mail_requests, __ATOMIC_ACQUIRE);
}

void PrivateLine::wait(std::uint32_t rung, std::chrono::nanoseconds limit) {
  futex_wait(area_.live(part_).header().mail_requests, rung, limit);
}

// Where the thread's id is another one in the tool's namespace the process's first thread has to stand for it. What the tool itself
// holds by ptrace (service/part_mover.h) goes on soon.
bool PrivateLine::may_answer() {
  const pid_t pid = files_.pid();
  auto status = procfs::read(pid, static_cast<pid_t>(called_ & ~shared::kBellOfChild), "status");
  if (!status) status = procfs::read(pid, "status");
  const auto state = status ? procfs::field(*status, "State") : std::nullopt;
  if (!state || state->empty()) return false;
  if (state->front() != 't') return std::string_view("TZX").find(state->front()) == std::string_view::npos;
  return bool(procfs::read(::getpid(), static_cast<pid_t>(procfs::number(*status, "TracerPid")), "status"));
}

std::optional<target::ThreadRun> PrivateLine::run() {
  std::uint32_t named = 0;
  const pid_t pid = files_.pid();
  if (!read(offsetof(MailSlot, tid), &named, sizeof named)) return std::nullopt;
  return target::run_of(pid, target::thread_called(pid, static_cast<pid_t>(named)));
}

// The thread writes `check` last, so it is read first.
std::uint32_t Conversation::hear() {
  std::uint32_t check = 0, word = 0;
  constexpr std::size_t kAt = offsetof(MailSlot, asked);
  const bool is_read = line_.read(kAt + offsetof(Turn, check), &check, sizeof check) &&
                       line_.read(kAt + offsetof(Turn, word), &word, sizeof word);
  return is_read && word == check ? word : 0;
}

Status Conversation::say(MailState state) {
  const std::uint32_t word = shared::turn(number_, state);
  constexpr std::size_t kAt = offsetof(MailSlot, answered);
  RETURN_IF_ERROR(line_.write(kAt + offsetof(Turn, word), &word, sizeof word));
  return line_.write(kAt + offsetof(Turn, check), &word, sizeof word);
}

bool Conversation::has_request() {
  Turn answered{};
  const std::uint32_t asked = hear();
  if (shared::state_of(asked) != MailState::request ||
      !line_.read(offsetof(MailSlot, answered), &answered, sizeof answered))
    return false;
  number_ = shared::number_of(asked);
  return is_before(shared::number_of(answered.word), number_);
}

Status Conversation::begin() { return say(MailState::working); }

// A thread that answers late each time takes as much of the tool's time as one that does not answer.
Status Conversation::await_result() {
  const auto begun = std::chrono::steady_clock::now();
  Status heard = wait_for(shared::turn(shared::number_after(number_, 1), MailState::result), begun);
  const auto waited = std::chrono::steady_clock::now() - begun;
  if (patience_) *patience_ -= waited;
  if (!heard) in_vain_ += waited;
  return heard;
}

// Only a thread that wants to run, and that the kernel does not let run, may be late for reasons that are not its own.
bool Conversation::is_silent(std::chrono::nanoseconds waited, std::optional<target::ThreadRun>& seen) {
  if (!patience_ || waited < kFirstLook) return false;
  const auto before = seen;
  if (!before || waited > kOfStopped) seen = line_.run();
  if (!before || !seen || waited <= kOfStopped) return false;
  const bool wants_to_run = before->state == 'R' || seen->state == 'R';
  const std::chrono::nanoseconds ran(seen->ran_ns - before->ran_ns);
  return !wants_to_run || ran > kMuch || seen->turns - before->turns > 1;
}

Status Conversation::wait_for(std::uint32_t wanted, std::chrono::steady_clock::time_point begun) {
  const std::chrono::nanoseconds patience =
      patience_ ? std::min<std::chrono::nanoseconds>(*patience_, kPatience) : kPatience;
  std::optional<target::ThreadRun> seen;
  for (;;) {
    const std::uint32_t rung = line_.rung(), heard = hear();
    if (heard == wanted) return ok();
    const MailState state = shared::state_of(heard);
    if (state == MailState::abandoned || state == MailState::left)
      return Error{.code = Code::system, .text = "the waiting thread gave up"};
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (waited > kOfStopped && !line_.may_answer())
      return Error{.code = Code::system, .text = "the waiting thread has been stopped"};
    if (waited > patience || is_silent(waited, seen))
      return Error{.code = Code::system, .text = "the waiting thread does not answer"};
    line_.wait(rung, kLook);
  }
}

Result<std::uint64_t> Conversation::command(const std::array<std::uint64_t, 7>& words) {
  static_assert(sizeof words == sizeof MailSlot::command);
  RETURN_IF_ERROR(line_.write(offsetof(MailSlot, command), words.data(), sizeof words));
  number_ = shared::number_after(number_, 1);
  RETURN_IF_ERROR(say(MailState::command));
  line_.wake();
  RETURN_IF_ERROR(await_result());
  number_ = shared::number_after(number_, 1);
  std::uint64_t result = 0;
  RETURN_IF_ERROR(line_.read(offsetof(MailSlot, result), &result, sizeof result));
  return result;
}

Status Conversation::answer() {
  number_ = shared::number_after(number_, 1);
  RETURN_IF_ERROR(say(MailState::done));
  line_.wake();
  return ok();
}

bool Conversation::finish() {
  const std::uint32_t before = number_;
  if (!answer()) return false;
  const auto deadline = std::chrono::steady_clock::now() + kLastWord;
  std::uint32_t heard = hear();
  while (heard == shared::turn(before, MailState::abandoned) && std::chrono::steady_clock::now() < deadline) {
    line_.wait(line_.rung(), 1ms);
    heard = hear();
  }
  const MailState state = shared::state_of(heard);
  return shared::number_of(heard) != before || (state != MailState::abandoned && state != MailState::left);
}

}  // namespace uprobe::control
