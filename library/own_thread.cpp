#include "library/own_thread.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>
#include <system_error>

namespace libuprobe {
namespace {

// No function of a library: it may be probed.
long system_call(long number, const void* a = nullptr, long b = 0, long c = 0, const void* d = nullptr) {
  register const void* fourth asm("r10") = d;
  long result = number;
  asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
  return result;
}

const void* as_word(int number) { return reinterpret_cast<const void*>(std::intptr_t{number}); }

// A signal, or being stopped for a probe, is no reason to come back.
void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  while (word.load() == value) system_call(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value);
}

void wake_all(std::atomic<std::uint32_t>& word) { system_call(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX); }

void take_turn(std::atomic<std::uint32_t>& turn) {
  std::uint32_t free = 0;
  if (turn.compare_exchange_strong(free, 1)) return;
  while (turn.exchange(2) != 0) wait_while(turn, 2);
}

void give_turn(std::atomic<std::uint32_t>& turn) {
  if (turn.exchange(0) == 2) wake_all(turn);
}

// No handler of the program runs on it; what an instruction raises is not held back, the agent lives by it.
class HeldBack {
 public:
  HeldBack() {
    sigset_t all;
    ::sigfillset(&all);
    for (const int number : {SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS}) ::sigdelset(&all, number);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~HeldBack() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldBack(const HeldBack&) = delete;
  HeldBack& operator=(const HeldBack&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

uprobe::Fd out_of_the_way(uprobe::Fd fd) {
  constexpr int kFar = 500;
  uprobe::Fd far(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kFar));
  return far ? std::move(far) : std::move(fd);
}

Result<std::unique_ptr<OwnThread>> OwnThread::start() {
  std::unique_ptr<OwnThread> own(new OwnThread);
  own->process_ = ::getpid();
  own->wake_ = out_of_the_way(uprobe::Fd(::eventfd(0, EFD_CLOEXEC)));
  if (!own->wake_) return Error{.text = "no descriptor is left"};
  const HeldBack held_back;
  try {
    own->thread_ = new std::thread([here = own.get()] { here->serve(); });
  } catch (const std::system_error&) {
    return Error{.text = "there can be no further thread"};
  }
  wait_while(own->id_, 0);
  return own;
}

OwnThread::~OwnThread() {
  if (thread_ == nullptr || !is_here()) return;
  run([this] { is_over_ = true; });
  thread_->join();
  delete thread_;
}

bool OwnThread::is_here() const { return system_call(SYS_getpid) == process_; }

void OwnThread::watch(int fd, std::function<void()> ready) {
  watched_ = fd;
  ready_ = std::move(ready);
}

void OwnThread::submit(Call& call) {
  take_turn(turn_);
  call_ = &call;
  const std::uint64_t one = 1;
  system_call(SYS_write, as_word(wake_.get()), static_cast<long>(reinterpret_cast<std::intptr_t>(&one)), sizeof one);
  wait_while(call.done, 0);
  give_turn(turn_);
}

void OwnThread::serve_call() {
  eventfd_t count = 0;
  ::eventfd_read(wake_.get(), &count);
  Call* const call = call_.exchange(nullptr);
  if (call == nullptr) return;
  try {
    call->run(call->work);
  } catch (...) {
    call->failure = std::current_exception();
  }
  call->done = 1;
  wake_all(call->done);
}

void OwnThread::serve() {
  ::pthread_setname_np(::pthread_self(), "uprobe-session");
  id_ = static_cast<std::uint32_t>(::gettid());
  wake_all(id_);
  while (!is_over_) {
    pollfd all[] = {{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                    {.fd = watched_, .events = POLLIN, .revents = 0}};
    ::poll(all, std::size(all), -1);
    if (all[1].revents != 0) ready_();
    if (all[0].revents != 0) serve_call();
  }
}

}  // namespace libuprobe
