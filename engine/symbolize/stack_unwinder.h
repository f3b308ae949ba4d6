// SPDX-License-Identifier: MIT
// Unwinds the stack of a record: by the unwind tables of the frames' code, and by frame pointers where the tables do not know,
// or point outside the copied part of the stack.
//
//   tables know the caller         the caller
//   tables say there is none       the end
//   no tables, no copy             the next higher frame with a link; its return address has to follow a call
//   no such frame                  the end
//
// The copy and the tables come from the target and are not trusted; the walk ends after at most kMostStackFrames frames.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/elf/elf_file.h"
#include "engine/output/symbols.h"
#include "engine/symbolize/call_frames.h"
#include "engine/trace/stack_copy.h"

namespace uprobe {

inline constexpr std::size_t kMostStackFrames = 128;

// The code at an address.
struct CodeAt {
  bool is_code = false;
  const elf::ElfFile* file = nullptr;  // null: the code has no file, or its file is not known
  elf::CallFrames* tables = nullptr;   // the file's
  std::uint64_t link_address = 0;      // in the file
};

std::vector<format::StackFrame> unwind(const trace::StackCopy& stack,
                                       const std::function<CodeAt(std::uint64_t address)>& find);

// Whether the file's bytes before a link-time address can be a call.
bool is_after_call(const elf::ElfFile& file, std::uint64_t address);

}  // namespace uprobe
