// SPDX-License-Identifier: MIT
// The stack of a record: who called, by the unwind tables of the code that the frames belong to, and where these say nothing, or
// lead out of what was copied of the stack, by frame pointers.
//
//   tables know the caller         the caller
//   tables say there is none       the end
//   no tables, no copy             the next frame with a link further up; its return address has to be behind a call
//   no such frame                  the end
//
// The copy and the tables are the target's: they may say anything, and the walk ends after kMostStackFrames frames at the latest.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/elf/call_frames.h"
#include "engine/elf/elf_file.h"
#include "engine/output/symbols.h"
#include "engine/trace/stack_copy.h"

namespace uprobe {

inline constexpr std::size_t kMostStackFrames = 128;

// What lies at an address.
struct CodeAt {
  bool is_code = false;
  const elf::ElfFile* file = nullptr;  // null: code of no file, or of one that is not known
  elf::CallFrames* tables = nullptr;   // of the file
  std::uint64_t link_address = 0;      // in it
};

std::vector<format::StackFrame> unwind(const trace::StackCopy& stack,
                                       const std::function<CodeAt(std::uint64_t address)>& find);

// Whether a file's bytes in front of a link-time address can be those of a call.
bool is_behind_call(const elf::ElfFile& file, std::uint64_t address);

}  // namespace uprobe
