#include "engine/control/mail_service.h"

#include <signal.h>

#include "engine/control/futex.h"
#include "engine/control/mail_target.h"
#include "engine/control/processes.h"

namespace uprobe::control {
namespace {

using shared::MailSlot;
using shared::MailState;
using namespace std::chrono_literals;

bool change(MailSlot& slot, MailState from, MailState to) {
  auto expected = static_cast<std::uint32_t>(from);
  return __atomic_compare_exchange_n(&slot.state, &expected, static_cast<std::uint32_t>(to), false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED);
}

}  // namespace

MailService::MailService(trace::Area& area, Armer& armer, Addr block) : area_(area), armer_(armer), block_(block) {
  // The program's signals are the main thread's business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

MailService::~MailService() { stop(); }

void MailService::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  futex_wake(area_.header().mail_requests);
  thread_.join();
}

void MailService::loop() {
  std::uint32_t& requests = area_.header().mail_requests;
  while (!stop_) {
    const std::uint32_t seen = __atomic_load_n(&requests, __ATOMIC_ACQUIRE);
    for (std::uint32_t i = 0; i < shared::kMailSlots; ++i) {
      MailSlot& slot = area_.mail(i);
      if (change(slot, MailState::request, MailState::working)) answer(slot);
      change(slot, MailState::abandoned, MailState::free);
    }
    if (!stop_) futex_wait(requests, seen, 50ms);
  }
}

void MailService::answer(MailSlot& slot) {
  if (Status served = serve(slot); !served) __atomic_fetch_add(&area_.header().mail_timeouts, 1, __ATOMIC_RELAXED);
  // An asker that gave up meanwhile has left the slot to us.
  if (!change(slot, MailState::working, MailState::done)) __atomic_store_n(&slot.state, 0, __ATOMIC_RELEASE);
  futex_wake(slot.state);
}

Status MailService::serve(MailSlot& slot) {
  // The request comes from memory that the program can write: the process must really have our area and block.
  const pid_t pid = process_of_thread(static_cast<pid_t>(slot.tid));
  if (pid == 0) return Error{.code = Code::damaged, .text = "a request from a thread that does not exist"};
  auto files = target::ProcessFiles::open(pid);
  if (!files) return files.error();
  MailTarget target(files.take(), slot);
  auto block = Block::read(target, block_);
  if (!block) return block.error();
  return armer_.arm(target, *block);
}

}  // namespace uprobe::control
