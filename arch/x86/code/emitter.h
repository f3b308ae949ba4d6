// SPDX-License-Identifier: MIT
// Appends machine code to a copy, knowing where each byte will stand. Internal to this folder.
#pragma once

#include <utility>
#include <vector>

#include "arch/code/relocate.h"

namespace uprobe::arch {

class Emitter {
 public:
  // The first byte will stand at `start`.
  explicit Emitter(Addr start) : start_(start) {}

  // `value` little endian, in `size` bytes.
  void number(std::uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) bytes_.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  void byte(unsigned value) { number(value, 1); }
  void raw(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

  // A 32-bit distance to `target`, counted from the end of the instruction, which comes `after` bytes after the field.
  void distance(Addr target, unsigned after = 0) {
    const auto value = static_cast<std::int64_t>(target - (here() + 4 + after));
    if (value != static_cast<std::int32_t>(value)) in_reach_ = false;
    number(static_cast<std::uint64_t>(value), 4);
  }
  // The same where the processor cuts the sum to 32 bits: everything is in reach.
  void distance_in_32_bits(Addr target, unsigned after) {
    number(static_cast<std::uint32_t>(target - (here() + 4 + after)), 4);
  }
  void jmp(Addr target) {
    byte(0xe9);
    distance(target);
  }
  // push qword ptr [rip + literal], where literal() follows `skip` bytes after the push. That aligns it, since a program may have set the
  // alignment check flag, in a room of one size wherever it stands. What fills the room is never executed.
  void push_literal(unsigned skip) {
    number(0x35ff, 2);
    number(skip + to_aligned(here() + 4 + skip), 4);
  }
  void literal(std::uint64_t value) {
    const unsigned before = to_aligned(here());
    fill(before);
    number(value, 8);
    fill(7 - before);
  }

  Addr here() const { return start_ + bytes_.size(); }
  unsigned size() const { return static_cast<unsigned>(bytes_.size()); }
  bool in_reach() const { return in_reach_; }  // every distance so far fits
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  static unsigned to_aligned(Addr at) { return static_cast<unsigned>(-at.value & 7); }
  void fill(unsigned size) { bytes_.insert(bytes_.end(), size, 0xcc); }

  Addr start_;
  std::vector<std::uint8_t> bytes_;
  bool in_reach_ = true;
};

}  // namespace uprobe::arch
