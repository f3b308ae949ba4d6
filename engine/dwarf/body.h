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

struct Body {
  std::vector<elf::Range> ranges;
  std::vector<BodyRow> rows;            // as the line table has them: by address, then by view
  std::vector<Jump> jumps;              // direct ones
  std::vector<std::uint64_t> computed;  // where jumps through registers or memory stand
  std::vector<std::uint64_t> packed;    // where instructions compute several numbers at once
  bool is_known = false;                // all of its bytes are instructions
};

// Of a function's DIE that has code.
Body body_of(const DebugInfo::Handles& handles, Dwarf_Die function);

// The ranges of a DIE's code, at most some thousands.
std::vector<elf::Range> ranges_of(Dwarf_Die die);

bool holds(const std::vector<elf::Range>& ranges, std::uint64_t address);

}  // namespace uprobe::dwarf
