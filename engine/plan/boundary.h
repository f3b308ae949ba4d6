// Whether an address is the start of an instruction.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/elf/elf_file.h"

namespace uprobe::plan {

struct Boundary {
  bool known = false;        // the code before it could be decoded up to here
  bool is_start = false;     // an instruction starts at the address
  std::uint64_t before = 0;  // start of the instruction that contains it
  std::uint64_t after = 0;   // start of the one behind that
};

// Decodes from the start of the function (symbol or FDE) that contains the link-time address; where no function is known
// to contain it, from the nearest function before it.
Boundary find_boundary(const elf::ElfFile& file, std::uint64_t address);

}  // namespace uprobe::plan
