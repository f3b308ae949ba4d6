// SPDX-License-Identifier: MIT
// A system call by an instruction of our own. Known in the tool and in the target.
#pragma once

#include <cstdint>

namespace uprobe::shared {

// The result, or a negative errno.
inline long make_system_call(long number, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0,
                             std::uint64_t d = 0, std::uint64_t e = 0, std::uint64_t f = 0) {
  register std::uint64_t r10 asm("r10") = d;
  register std::uint64_t r8 asm("r8") = e;
  register std::uint64_t r9 asm("r9") = f;
  long result = number;
  asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}

}  // namespace uprobe::shared
