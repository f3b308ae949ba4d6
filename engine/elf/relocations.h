// SPDX-License-Identifier: MIT
// The two kinds of relocation that show whether an object has been relocated and what its IFUNCs chose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/abi/elf.h"
#include "engine/elf/elf_file.h"

namespace uprobe::elf {

using arch::kIrelative;
using arch::kRelative;

struct Relocation {
  std::uint64_t place = 0;  // link-time address
  std::uint32_t type = 0;
  std::uint64_t addend = 0;
};

// RELATIVE and IRELATIVE entries of the section headers' RELA tables, or without those of PT_DYNAMIC's. Bounds are checked; a
// table that makes no sense is skipped.
std::vector<Relocation> relocations_of(const ElfFile& file);

// Words that get the address of a symbol of this file (unless another object has one of that name, which is not known): as RELATIVE
// entries. Choices (IFUNC) and thread-local data are left out. Bounds are checked.
std::vector<Relocation> own_symbols_of(const ElfFile& file);

// A word of an object by which its code finds the thread-local data of a module.
struct ThreadWord {
  std::uint64_t place = 0;   // link-time address
  bool is_distance = false;  // from the thread pointer, of the data at `data`; else the number of the module
  std::uint64_t data = 0;    // a place in the object's own thread-local data
  // By a symbol of this file that another object may define instead, and `size` bytes of it: then the word is about that one. The next
  // word is the symbol's place in the module's data.
  bool is_by_name = false;
  std::uint64_t size = 0;
};
// Those of the object's own data. Bounds are checked.
std::vector<ThreadWord> thread_words_of(const ElfFile& file);

// The words that DT_RELR relocates, of those whose address leaves `remainder` when divided by `divisor`: their contents in the
// file are link-time addresses. Sorted. Bounds are checked.
std::vector<std::uint64_t> packed_places_of(const ElfFile& file, std::uint64_t divisor, std::uint64_t remainder);

// A program's own copy of a library's data (a copy relocation). The dynamic linker directs all uses of the name to the copy.
struct CopiedSymbol {
  std::string name;  // without version
  std::uint64_t place = 0;
};
std::vector<CopiedSymbol> copies_of(const ElfFile& program);

// Link-time addresses in executable segments that the loader writes to before the code runs (DT_TEXTREL; each at most 8
// bytes), sorted. Empty for nearly every file.
std::vector<std::uint64_t> relocated_code_of(const ElfFile& file);

}  // namespace uprobe::elf
