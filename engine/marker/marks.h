// SPDX-License-Identifier: MIT
// Marks: the markers that library/uprobe/marker.h makes, which have a format of printf's. Each place has two notes: stapsdt's,
// with names and operands (notes.h), and one in the section .note.uprobe that adds the format:
//
//   note          [ u32 7 | u32 24 | u32 1 | "uprobe\0" ], padded to 4 bytes; 1 is the version
//   description   [ u64 place | u64 base | u64 format ]
//
// Addresses are as in notes.h. The format is a text in the file's constants, which ends with a NUL.
//
// The file may be hostile: a note that makes no sense is left out, with the reason, and the others are read.
#pragma once

#include <string>
#include <vector>

#include "engine/elf/elf_file.h"
#include "engine/lex/print_format.h"
#include "engine/marker/arguments.h"
#include "engine/marker/notes.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::marker {

inline constexpr std::size_t kLongestFormat = 1024;  // characters

// The marks of the file, in its order; empty if it has none. Problems are of both kinds of notes.
Notes read_marks(const elf::ElfFile& file);

// "fd=$arg1:s32", "path=$arg2:string" for each conversion of a mark's format. An argument has the name before its '=', or argN if
// that is none or is there already. `places`: the arguments of each of its places.
std::vector<spec::WrittenArgument> written_by_format(const std::string& format,
                                                     const std::vector<std::vector<NotedArgument>>& places);

}  // namespace uprobe::marker
