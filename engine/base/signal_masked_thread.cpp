// SPDX-License-Identifier: MIT
#include "engine/base/signal_masked_thread.h"

#include <csignal>

namespace uprobe {
namespace {

// Blocks signals in the calling thread, whose mask a new thread inherits.
class HeldBack {
 public:
  explicit HeldBack(std::initializer_list<int> let_through) {
    sigset_t held;
    ::sigfillset(&held);
    for (const int number : let_through) ::sigdelset(&held, number);
    ::pthread_sigmask(SIG_SETMASK, &held, &before_);
  }
  ~HeldBack() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldBack(const HeldBack&) = delete;
  HeldBack& operator=(const HeldBack&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::thread start_signal_masked_thread(std::function<void()> work, std::initializer_list<int> let_through) {
  const HeldBack held_back(let_through);
  return std::thread(std::move(work));
}

}  // namespace uprobe
