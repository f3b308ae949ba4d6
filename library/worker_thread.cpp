// SPDX-License-Identifier: MIT
#include "library/worker_thread.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>
#include <system_error>

#include "engine/base/signal_masked_thread.h"
#include "library/system_call.h"

// Of a program built with ThreadSanitizer, which does not see these system calls nor the atomics of a library built without it.
extern "C" {
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
}

namespace libuprobe {
namespace {

// Everything before the hand-over of `call` happens before everything after it was taken.
void hand_over(void* call) {
  if (__tsan_release != nullptr) __tsan_release(call);
}
void take_over(void* call) {
  if (__tsan_acquire != nullptr) __tsan_acquire(call);
}

// Goes on waiting after a signal, or a stop for a probe.
void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  while (word.load() == value) system_call(SYS_futex, as_word(&word), FUTEX_WAIT_PRIVATE, value);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  system_call(SYS_futex, as_word(&word), FUTEX_WAKE_PRIVATE, INT32_MAX);
}

void take_turn(std::atomic<std::uint32_t>& turn) {
  std::uint32_t free = 0;
  if (turn.compare_exchange_strong(free, 1)) return;
  while (turn.exchange(2) != 0) wait_while(turn, 2);
}

void give_turn(std::atomic<std::uint32_t>& turn) {
  if (turn.exchange(0) == 2) wake_all(turn);
}

// No handler of the program runs on this thread. Signals that instructions raise stay unblocked, because the agent needs them.
constexpr auto kOfInstructions = {SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS};

}  // namespace

uprobe::Fd out_of_the_way(uprobe::Fd fd) {
  constexpr int kFar = 500;
  uprobe::Fd far(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kFar));
  return far ? std::move(far) : std::move(fd);
}

Result<std::unique_ptr<WorkerThread>> WorkerThread::start() {
  std::unique_ptr<WorkerThread> own(new WorkerThread);
  own->wake_ = out_of_the_way(uprobe::Fd(::eventfd(0, EFD_CLOEXEC)));
  if (!own->wake_) return Error{.text = "no descriptor is left"};
  try {
    own->thread_ = uprobe::start_signal_masked_thread([here = own.get()] { here->serve(); }, kOfInstructions);
  } catch (const std::system_error&) {
    return Error{.text = "no further thread can be made"};
  }
  wait_while(own->id_, 0);
  return own;
}

WorkerThread::~WorkerThread() {
  if (!thread_.joinable()) return;
  run([this] { is_over_ = true; });
  thread_.join();
}

void WorkerThread::watch(int fd, std::function<void()> ready) {
  watched_ = fd;
  ready_ = std::move(ready);
}

bool WorkerThread::submit(Call& call) {
  take_turn(turn_);
  hand_over(&call);
  call_ = &call;
  const std::uint64_t one = 1;
  const long told = system_call(SYS_write, static_cast<std::uint64_t>(wake_.get()), as_word(&one), sizeof one);
  const bool is_run = told == sizeof one || call_.exchange(nullptr) == nullptr;  // or the thread has just taken it
  if (is_run) wait_while(call.done, 0);
  take_over(&call);
  give_turn(turn_);
  return is_run;
}

void WorkerThread::serve_call() {
  eventfd_t count = 0;
  ::eventfd_read(wake_.get(), &count);
  Call* const call = call_.exchange(nullptr);
  if (call == nullptr) return;
  take_over(call);
  try {
    call->run(call->work);
  } catch (...) {
    call->failure = std::current_exception();
  }
  hand_over(call);
  call->done = 1;
  wake_all(call->done);
}

void WorkerThread::serve() {
  ::pthread_setname_np(::pthread_self(), "uprobe-session");
  id_ = static_cast<std::uint32_t>(::gettid());
  wake_all(id_);
  // Closing a descriptor does not wake a thread that waits for it.
  constexpr int kLook = 1000;
  while (!is_over_) {
    pollfd all[] = {{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                    {.fd = watched_, .events = POLLIN, .revents = 0}};
    ::poll(all, std::size(all), kLook);
    if (all[1].revents != 0) ready_();
    if (all[0].revents != 0) serve_call();
    is_over_ = is_over_ || (all[0].revents & POLLNVAL) != 0;
  }
}

}  // namespace libuprobe
