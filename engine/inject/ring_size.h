// SPDX-License-Identifier: MIT
// The memory of a session for which the user has asked for no size.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace uprobe::control {

// Of each of `rings`: what a burst of a million hits needs, or less, where the limits of a process (its memory and address space) or
// those of this one (the size of files) would be near otherwise.
std::uint64_t usual_ring_bytes(pid_t pid, std::uint32_t rings);

// How many bytes of records the reader may keep: trace::ReaderOptions::pending_bytes, or less where the memory of this process is
// limited.
std::uint64_t usual_pending_bytes();

}  // namespace uprobe::control
