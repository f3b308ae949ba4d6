// SPDX-License-Identifier: MIT
// Where a C library makes the system calls that the agent has to know about.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/elf/elf_file.h"
#include "engine/shared/process_block.h"

namespace uprobe::plan {

struct SystemCallSite {
  // In the file: of the `syscall` instruction, or of the one after it; open_call, quick_call: of the one before it.
  std::uint64_t offset = 0;
  shared::PointRole role = shared::PointRole::system_call;
  bool is_signal_return = false;  // where handlers return to
  bool maps_memory = false;       // a call of mmap
};

// The instructions of system calls for what changes signals, programs, mappings and filters, for the waits that take a signal
// mask, and those in the function syscall() and in musl's __syscall_cp_asm and __syscall_cp_c, which make any call; where
// handlers return to; and the instructions after clone, clone3, vfork and fork. The number is the constant last loaded for it
// before, or to a register copied there, in the same function; a wrong guess costs time only, since the agent looks at the
// real number. Where nothing but that load in front leads to a call of open or openat, the point is there: a jump fits, so that a
// program that opens many files is not trapped each time. Before calls that change signals or mappings there is one as well, besides
// the one at the call (quick_call). Neither in Go, nor before the calls of glibc's getcontext and its kin, whose stacks may be too
// small for a hit by jump.
// `ends`: also those of exit_group.
Result<std::vector<SystemCallSite>> system_call_sites(const elf::ElfFile& file, bool ends);

}  // namespace uprobe::plan
