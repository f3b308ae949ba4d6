// SPDX-License-Identifier: MIT
// The code of a function, as far as the inlined copies in it are judged by it: its rows of the line table, and its jumps.
// Internal to this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/dwarf/handles.h"
#include "engine/elf/elf_file.h"

namespace uprobe::dwarf {

// A row of the line table. Rows of one address are numbered by their views, from 0 on (gcc, "location views").
struct BodyRow {
  std::uint64_t address = 0;
  unsigned view = 0;
  int line = 0, column = 0;  // 0: unknown
  bool is_statement = false;
  const char* source = "";  // its path; libdw's
};

struct Jump {
  std::uint64_t from = 0, to = 0;
};

struct BodyInsn {
  std::uint64_t address = 0;
  std::uint64_t target = 0;  // of a direct jump; 0: it is none
  std::uint8_t length = 0;
  bool falls_through = true;
  bool just_computes = false;  // registers: compilers may move it to where the source has none
};

struct Body {
  std::vector<elf::Range> ranges;
  std::vector<BodyInsn> insns;  // by address
  std::vector<std::size_t>
      roots;                  // of `insns`: the first one, and where control comes in ways that the code does not show
  std::vector<BodyRow> rows;  // as the line table has them: by address, then by view
  std::vector<Jump> jumps;    // direct ones
  std::vector<std::uint64_t> computed;  // where jumps through registers or memory stand
  std::vector<std::uint64_t> packed;    // where instructions compute several numbers at once
  bool is_known = false;                // all of its bytes are instructions
};

// Of a function's DIE that has code.
Body body_of(const DebugInfo::Handles& handles, Dwarf_Die function);

// The instructions that control reaches without passing the one at `left_out`: true by their index.
std::vector<bool> reached_without(const Body& body, std::uint64_t left_out);

// Whether control may come from an instruction, by its index, to the one at an address.
bool leads_to(const Body& body, std::size_t from, std::uint64_t address);

// The ranges of a DIE's code, at most some thousands.
std::vector<elf::Range> ranges_of(Dwarf_Die die);

bool holds(const std::vector<elf::Range>& ranges, std::uint64_t address);

}  // namespace uprobe::dwarf
