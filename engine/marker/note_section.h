// SPDX-License-Identifier: MIT
// A section of notes in a file, one note after the other:
//
//   [ u32 bytes of the owner | u32 bytes of the description | u32 type | owner | description ], owner and description padded to 4
//
// strip moves the notes of programs to a debug file, if it is told to make one; addresses in them are those of the program then, too.
//
// The files may be hostile: a note that makes no sense is left out, with the reason, and the others are read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/elf/bytes_view.h"
#include "engine/elf/elf_file.h"

namespace uprobe::marker {

inline constexpr std::size_t kMostNotes = 32'768;  // of a section

struct NoteKind {
  std::string_view section, owner;  // the owner with its NUL
  std::uint32_t type = 0;
  const char* name = "";  // for the reason: "version 3 of stapsdt"
};

// Gets the description of each note of the kind; an error says why the note is left out.
using TakeNote = std::function<Status(elf::BytesView description)>;

// Nothing is read if neither the file nor its debug file has such a section. Reasons are added to `problems`, 100 at most:
// "note at 0x120: ...".
void read_note_section(const elf::ElfFile& file, const NoteKind& kind, const TakeNote& take,
                       std::vector<std::string>& problems);

// The address of a section of this name, which is not empty.
std::optional<std::uint64_t> section_address(const elf::ElfFile& file, std::string_view name);

}  // namespace uprobe::marker
