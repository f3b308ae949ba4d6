// Futexes on shared memory, from the tool's side.
#pragma once

#include <chrono>
#include <cstdint>

namespace uprobe::control {

// Sleeps while *word == value, at most `limit`; may return early.
void futex_wait(std::uint32_t& word, std::uint32_t value, std::chrono::nanoseconds limit);
void futex_wake(std::uint32_t& word);

}  // namespace uprobe::control
