// SPDX-License-Identifier: MIT
// The static markers of a file (USDT): what its program says of itself by notes in the section .note.stapsdt.
//
//   note   [ u32 8 | u32 bytes of the rest | u32 3 | "stapsdt\0" ]
//   rest   [ u64 place | u64 base | u64 semaphore | provider\0 | name\0 | arguments\0 ], padded to 4 bytes
//
// Format: SystemTap's <sys/sdt.h>, version 3. Addresses are those of the link; a prelinker that has moved the file since then has
// moved the section .stapsdt.base too, by as much as all else, and `base` is that section's old address. A semaphore is a u16
// in the file's data, which tracers count up while they want the marker (0: it has none).
//
// The file may be hostile: a note that makes no sense is left out, with the reason, and the others are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/elf/elf_file.h"

namespace uprobe::marker {

inline constexpr std::string_view kBaseSection = ".stapsdt.base";
inline constexpr std::size_t kLongestName = 128;        // of a provider and of a marker
inline constexpr std::size_t kLongestArguments = 4096;  // characters

// One place of a marker. A marker can have many.
struct Marker {
  std::string provider, name;
  std::string arguments;                        // as the assembler wrote them: "-4@OPERAND 8@OPERAND"
  std::uint64_t address = 0, offset = 0;        // link time; in the file
  std::optional<std::uint64_t> semaphore = {};  // offset in the file
  std::string format = {};                      // of a mark (marks.h), else empty: of printf's
};

struct Notes {
  std::vector<Marker> markers;        // in the file's order
  std::vector<std::string> problems;  // of notes that were left out: "note at 0x120: its place is not in code"
};

// Empty if the file has none.
Notes read_notes(const elf::ElfFile& file);

}  // namespace uprobe::marker
