// SPDX-License-Identifier: MIT
// Which instructions control reaches from given places on: by falling through, by direct branches, by calls and by coming back
// from them. What it reaches is code, whatever lies around it; a linear walk that goes on after a jump or a return may be in
// data.
//
// A call is taken to come back, and so is a system call; but not to bytes that reached code loads, and not where the callee
// takes its return address from the stack: data lie there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/elf/elf_file.h"
#include "engine/flow/flow_map.h"

namespace uprobe::arch {
struct Scanned;
}

namespace uprobe::plan {

// The file's bytes from link-time address `from` to the end of its executable segment; empty outside of all.
std::span<const std::uint8_t> code_bytes(const elf::ElfFile& file, std::uint64_t from);

class Reach {
 public:
  // The file must outlive it. Nothing outside of the areas, which do not overlap, is followed.
  Reach(const elf::ElfFile& file, const std::vector<elf::Range>& areas);

  // Where an instruction starts for certain.
  void add(std::uint64_t place);
  // Where data begin for certain: control does not fall into them. Before the first run().
  void add_data(std::uint64_t place);
  // Follows control from all places added so far.
  void run();

  bool is_start(std::uint64_t address) const;
  std::optional<std::uint64_t> next_start(std::uint64_t from, std::uint64_t limit) const;  // in [from, limit)
  // The last reached instruction that starts before the address.
  std::optional<std::uint64_t> start_before(std::uint64_t address) const;
  // Whether reached code loads from the address, and whether it makes a pointer to it.
  bool is_read(std::uint64_t address) const;
  bool is_taken(std::uint64_t address) const;
  // Whether either holds for an address in [from, limit).
  bool is_used_as_data(std::uint64_t from, std::uint64_t limit) const;

 private:
  struct Area {
    elf::Range range;
    std::span<const std::uint8_t> bytes;
    AddressBits starts;
    AddressBits arrivals;  // where branches and calls lead, and the places that were added
    AddressBits read;      // by loads
    AddressBits taken;     // made a pointer to
  };

  const Area* area_of(std::uint64_t address) const;
  Area* area_of(std::uint64_t address);
  void follow_all();
  void follow(std::uint64_t at);
  void arrive(std::uint64_t target);
  void note_operands(const arch::Scanned& insn);
  static bool is_data_after(const Area& area, const arch::Scanned& insn, std::uint64_t next);
  bool fell_into_data() const;
  static bool is_fallen_into(const Area& area, std::uint64_t at);
  bool takes_return_address(std::uint64_t callee, std::uint64_t caller) const;

  const elf::ElfFile& file_;
  bool is_position_independent_;
  std::vector<Area> areas_;
  std::vector<std::uint64_t> pending_, places_;
};

}  // namespace uprobe::plan
