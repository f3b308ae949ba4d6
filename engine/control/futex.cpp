#include "engine/control/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace uprobe::control {

void futex_wait(std::uint32_t& word, std::uint32_t value, std::chrono::nanoseconds limit) {
  const timespec timeout{.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000),
                         .tv_nsec = limit.count() % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void futex_wake(std::uint32_t& word) { ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace uprobe::control
