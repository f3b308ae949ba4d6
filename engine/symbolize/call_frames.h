// SPDX-License-Identifier: MIT
// Frames by a file's unwind tables (.eh_frame, .debug_frame; DWARF 5, section 6.4): the rules by which the caller's registers
// follow from those at an address. frame_walk.h applies the rules.
//
// Tables are as hostile as any other part of a file: a frame whose table cannot be read, or takes too long, is unknown.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "arch/abi/dwarf_registers.h"
#include "engine/elf/bytes_view.h"

namespace uprobe::elf {

using arch::kFrameIp;
using arch::kFrameRegisters;
using arch::kFrameSp;

struct FrameRule {
  enum class Kind : std::uint8_t {
    unsaid,
    undefined,      // the caller's value cannot be known; of the return address: there is no caller
    same,           // unchanged
    at_offset,      // saved `offset` from the CFA
    is_offset,      // the value is the CFA + `offset`
    in_register,    // in `reg`; of the CFA: plus `offset`
    at_expression,  // saved at the address of an expression
    is_expression,
  };
  Kind kind = Kind::unsaid;
  std::uint64_t reg = 0;
  std::int64_t offset = 0;
  BytesView expression;
};

struct FrameRow {
  FrameRule cfa;  // in_register or is_expression
  std::array<FrameRule, kFrameRegisters> registers;
  bool is_signal = false;  // the caller was interrupted: it goes on at its return address, not after a call
};

class CallFrames {
 public:
  // Of a file that ElfFile has opened; views its bytes, which must outlive it.
  explicit CallFrames(std::span<const std::uint8_t> file);

  // The rules at the instruction with a link-time address; null: unknown. Valid until the next call.
  const FrameRow* row_at(std::uint64_t address);

 private:
  // The file's size bounds the number of each; entries are in the order of `begin`.
  struct Form {
    std::uint64_t code_alignment = 0, return_column = 0;
    std::int64_t data_alignment = 0;
    BytesView rules;
    bool is_signal = false;
  };
  struct Entry {
    std::uint64_t begin = 0, end = 0;
    BytesView rules;
    std::uint32_t form = 0;
  };
  class Program;

  const Entry* entry_at(std::uint64_t address) const;
  std::optional<FrameRow> make_row(std::uint64_t address) const;

  std::vector<Form> forms_;
  std::vector<Entry> entries_;
  std::unordered_map<std::uint64_t, std::optional<FrameRow>> rows_;
};

}  // namespace uprobe::elf
