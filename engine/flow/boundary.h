// SPDX-License-Identifier: MIT
// Whether an address is the start of an instruction: whether control is known to reach it (reach.h), or whether it stands in
// code that nothing known leads to and that cannot be data (gap.h). What symbols call data is none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/elf/elf_file.h"
#include "engine/flow/flow_cache.h"
#include "engine/flow/proven_code.h"

namespace uprobe::plan {

struct Boundary {
  bool known = false;        // control reaches the address, or the instruction that it is inside of
  bool is_start = false;     // an instruction starts at the address
  std::uint64_t before = 0;  // start of the instruction that contains it
  std::uint64_t after = 0;   // start of the one after that
  const char* reason = "";   // why nothing is known
};

// Answers for one file, which is shown to be code no further than is asked for: a function that contains the address, and
// only where its branches do not tell, all of the file.
class Boundaries {
 public:
  // `flows` must outlive it.
  Boundaries(std::shared_ptr<const elf::ElfFile> file, FlowCache& flows);

  Boundary find(std::uint64_t address);

 private:
  std::optional<Boundary> find_in_function(std::uint64_t address);
  const Reach& reach_of(const elf::Range& function);
  const ProvenCode& whole();
  bool is_decoded_to(const elf::Range& function, std::uint64_t address) const;
  bool is_named_data(std::uint64_t address);
  const std::vector<elf::Range>& named_data();
  Boundary in_padding(std::uint64_t address);
  Boundary in_gap(std::uint64_t address);

  std::shared_ptr<const elf::ElfFile> file_;
  FlowCache& flows_;
  std::vector<std::uint64_t> starts_;                  // where instructions start for certain
  std::optional<std::vector<elf::Range>> named_data_;  // by symbols
  elf::Range function_;                                // the one asked for last
  std::optional<Reach> reach_;                         // of it
  std::unique_ptr<ProvenCode> whole_;
};

}  // namespace uprobe::plan
