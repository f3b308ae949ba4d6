// SPDX-License-Identifier: MIT
// Which instructions of a file are shown to be instructions: control reaches them from where code certainly begins (functions'
// symbols, unwind entries and their landing pads, initialisers, resolved jump tables), or a pointer leads there that can be
// one to code only. All of a file is followed once, some 20 M instructions a second.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/elf/image.h"
#include "engine/flow/flow.h"
#include "engine/flow/reach.h"

namespace uprobe::plan {

class ProvenCode {
 public:
  // `data`: what symbols say is data, sorted.
  explicit ProvenCode(const FileFlow& flow, const std::vector<elf::Range>& data = {});

  // What is not shown is unknown: it may be data.
  bool is_start(std::uint64_t address) const { return reach_.is_start(address); }
  const Reach& reach() const { return reach_; }

 private:
  void add_certain(const elf::Image& image);
  void add_linkage(std::uint64_t begin, std::uint64_t end);
  void add_blocks(std::uint64_t first);
  void find_jumping();
  bool add_tables();
  void add_pointers(const elf::Image& image);
  void add_labels();
  bool leads_on_from_call(std::uint64_t label) const;
  bool may_lead_to(std::uint64_t address) const;
  bool is_like_code(std::uint64_t address) const;
  bool spend(std::size_t steps) const;

  const FileFlow& flow_;
  Reach reach_;
  mutable std::size_t steps_;  // that may still be spent
  std::vector<bool> jumping_;  // by function: pointers and tables may lead into it
};

// Whether the instruction at the address, where code or data may stand, looks like one of a program: it is not all zeros, and a
// branch does not lead into another instruction.
bool is_likely_code(const elf::ElfFile& file, const Reach& reach, std::uint64_t address, const arch::Scanned& insn);

// The reached instruction that holds the address after its own first byte.
std::optional<std::uint64_t> start_around(const elf::ElfFile& file, const Reach& reach, std::uint64_t address);

}  // namespace uprobe::plan
