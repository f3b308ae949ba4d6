// SPDX-License-Identifier: MIT
#include "engine/mailbox/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <thread>
#include <vector>

namespace uprobe::control {

bool futex_wait(std::uint32_t& word, std::uint32_t value, std::chrono::nanoseconds limit) {
  const timespec timeout{.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000),
                         .tv_nsec = limit.count() % 1'000'000'000};
  return ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0) == 0;
}

// A kernel before 5.16 does not have this call: then the tool polls.
bool futex_wait_any(std::span<const FutexSeen> words, std::chrono::nanoseconds limit) {
  constexpr long kFutexWaitv = 449;
  constexpr std::chrono::milliseconds kLook{5};
  if (words.size() == 1) return futex_wait(*words[0].word, words[0].value, limit);
  struct Waiter {
    std::uint64_t value, address;
    std::uint32_t flags, reserved;
  };
  constexpr std::uint32_t kOf32Bits = 2;
  std::vector<Waiter> waiters;
  for (const FutexSeen& seen : words)
    waiters.push_back({seen.value, reinterpret_cast<std::uint64_t>(seen.word), kOf32Bits, 0});
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  const std::int64_t nanoseconds = until.tv_nsec + limit.count();
  until.tv_sec += static_cast<time_t>(nanoseconds / 1'000'000'000), until.tv_nsec = nanoseconds % 1'000'000'000;
  if (::syscall(kFutexWaitv, waiters.data(), waiters.size(), 0, &until, CLOCK_MONOTONIC) >= 0) return true;
  if (errno == ENOSYS) std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(limit, kLook));
  return false;
}

void futex_wake(std::uint32_t& word) { ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace uprobe::control
