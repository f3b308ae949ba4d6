#include "engine/base/quiet_thread.h"

#include <csignal>

namespace uprobe {
namespace {

// The mask of the calling thread, which a new one inherits.
class HeldBack {
 public:
  HeldBack() {
    sigset_t all;
    ::sigfillset(&all);
    ::sigdelset(&all, SIGCHLD);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~HeldBack() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldBack(const HeldBack&) = delete;
  HeldBack& operator=(const HeldBack&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::thread start_quiet_thread(std::function<void()> work) {
  const HeldBack held_back;
  return std::thread(std::move(work));
}

}  // namespace uprobe
