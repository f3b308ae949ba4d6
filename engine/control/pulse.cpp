#include "engine/control/pulse.h"

#include <signal.h>

#include <chrono>

namespace uprobe::control {

// Signals are the main thread's business.
Pulse::Pulse(std::uint32_t& word) : word_(word) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { beat(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Pulse::~Pulse() {
  {
    const std::lock_guard lock(lock_);
    stop_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void Pulse::beat() {
  std::unique_lock lock(lock_);
  do {
    __atomic_fetch_add(&word_, 1, __ATOMIC_RELAXED);
  } while (!ends_.wait_for(lock, std::chrono::milliseconds(50), [this] { return stop_; }));
}

}  // namespace uprobe::control
