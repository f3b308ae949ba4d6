// SPDX-License-Identifier: MIT
// Futexes on shared memory, for the tool.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

namespace uprobe::control {

// Sleeps while *word == value, at most `limit`; may return early. True: it was woken.
bool futex_wait(std::uint32_t& word, std::uint32_t value, std::chrono::nanoseconds limit);
// The same for several words, until one of them has changed or is woken.
struct FutexSeen {
  std::uint32_t* word;
  std::uint32_t value;
};
bool futex_wait_any(std::span<const FutexSeen> words, std::chrono::nanoseconds limit);
void futex_wake(std::uint32_t& word);

}  // namespace uprobe::control
