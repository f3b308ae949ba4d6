// SPDX-License-Identifier: MIT
// libdw's handles, and short queries to it. Internal to this folder.
#pragma once

#include <dwarf.h>
#include <elfutils/libdw.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/dwarf/debug_info.h"
#include "engine/elf/file_bytes.h"

namespace uprobe::dwarf {

struct Packaged;

struct DebugInfo::Handles {
  Handles();
  ~Handles();
  struct End {
    void operator()(Elf* of) const { elf_end(of); }
    void operator()(Dwarf* of) const { dwarf_end(of); }
    void operator()(Dwarf_CFI* of) const { dwarf_cfi_end(of); }
  };
  // A file of debug information beside the program's.
  struct Further {
    std::string path;
    elf::FileBytes bytes;
    std::unique_ptr<Elf, End> elf;
    std::unique_ptr<Dwarf, End> debug;
  };
  std::optional<Further> separate, shared;   // its debug file; what that has in common with others (dwz)
  std::vector<std::uint8_t> missing_shared;  // the build id of the latter, if it was not found
  std::unique_ptr<Elf, End> elf;
  std::unique_ptr<Dwarf, End> own;
  Dwarf* debug = nullptr;                  // its own, or that of `separate`
  std::unique_ptr<Dwarf_CFI, End> frames;  // .eh_frame
  const elf::ElfFile* file = nullptr;

  // An inlined copy of DebugInfo::copies_of().
  struct Copy {
    Dwarf_Die die{}, function{};  // its own, and that of the function whose code it is a part of
    bool is_in_itself = false;    // it is inside of another copy, or of the function's own code
    InlinedCopy found;
  };
  std::vector<Copy> copies;
  std::unique_ptr<Packaged> packaged;  // what a package (.dwp) has
};

template <class Visit>
void each_child(Dwarf_Die parent, const Visit& visit) {
  Dwarf_Die die;
  if (dwarf_child(&parent, &die) != 0) return;
  do visit(die);
  while (dwarf_siblingof(&die, &die) == 0);
}

// A file in memory, for reading: nothing is ever written to it. Null: it is none.
Elf* open_image(std::span<const std::uint8_t> bytes);

// The blocks around an address, innermost first, up to the unit.
using Scopes = std::vector<Dwarf_Die>;
Scopes scopes_at(const DebugInfo::Handles& handles, std::uint64_t address);

// Of an inlined copy: its own block, what its function has beside it, and what is around that in the source.
Scopes scopes_of_copy(Dwarf_Die copy);

// The function whose code and frame these are: for an inlined function's block, the function into which it was inlined.
std::optional<Dwarf_Die> function_of(const Scopes& scopes);

// The unit that holds an address.
std::optional<Dwarf_Die> unit_at(const DebugInfo::Handles& handles, std::uint64_t address);

// The unit for which a skeleton stands, if its file or package can be found (-gsplit-dwarf); any other unit itself.
Dwarf_Die whole_unit(const DebugInfo::Handles& handles, Dwarf_Die unit);

// The source file of a declaration; null: unknown. (libdw's own dwarf_decl_file stops the process at the units of gcc's
// -gsplit-dwarf.)
const char* declaring_source(Dwarf_Die die);

// A number that a DIE has, or what it was made from; nothing: there is none.
std::optional<std::uint64_t> number_in(Dwarf_Die die, unsigned attribute);

// Whether a location holds for every address: there is no list of them.
bool is_everywhere(Dwarf_Attribute& attribute);

// Whether a variable is described at one place of the frame from the function's beginning to its end: for an argument that is
// wrong until it has been stored there.
bool is_in_frame(Dwarf_Die variable);

// Whether the function first makes its frame and stores its arguments there, as code without optimisation does.
bool has_prologue(const Dwarf_Die& function);

// The first instruction after the prologue, or the function's own.
std::uint64_t end_of_prologue(const DebugInfo::Handles& handles, Dwarf_Die function);

}  // namespace uprobe::dwarf
