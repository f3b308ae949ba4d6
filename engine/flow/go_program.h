// SPDX-License-Identifier: MIT
// What is known of a program that Go's compiler has made.
#pragma once

#include <cstdint>

#include "engine/elf/image.h"

namespace uprobe::plan {

// plain: without a C library, so that each thread's fs base is the one that Go's runtime sets, and of a version whose runtime is
// known (arch/shared/trampoline_frame.h). with_libc: a C library may own the threads. other_version: one that is not known.
enum class GoProgram : std::uint8_t { none, plain, with_libc, other_version };

GoProgram go_program_of(const elf::Image& image);

}  // namespace uprobe::plan
