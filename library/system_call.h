// SPDX-License-Identifier: MIT
// System calls in inline assembly: functions of the C library may be probed, and a call of one would make events.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>

#include <cstdint>

#include "arch/shared/system_call.h"

namespace libuprobe {

inline std::uint64_t as_word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// At most four arguments. Returns a negative errno on failure.
inline long system_call(long number, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0,
                        std::uint64_t d = 0) {
  return uprobe::shared::make_system_call(number, a, b, c, d);
}

inline pid_t current_process() { return static_cast<pid_t>(system_call(SYS_getpid)); }

}  // namespace libuprobe
