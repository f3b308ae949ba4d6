// SPDX-License-Identifier: MIT
// The stack after a record (shared::StackHead) as the target wrote it. Its shape is checked, its contents are not trusted.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "engine/shared/session_area.h"

namespace uprobe::trace {

struct StackCopy {
  // By frame pointers: first the place of the hit, then each return address and its location on the stack (0 for the first).
  struct Frame {
    std::uint64_t address = 0, place = 0;
  };
  std::vector<Frame> frames;
  std::array<std::uint64_t, shared::kWalkRegisters> registers{};  // as in shared::Registers
  std::uint64_t begin = 0;
  std::span<const std::uint8_t> bytes;  // the stack from `begin` on; the record's memory

  std::uint64_t operator[](shared::Reg reg) const { return registers[static_cast<std::size_t>(reg)]; }

  // The word at an address: in the copied bytes, or a frame's link or return address.
  std::optional<std::uint64_t> word_at(std::uint64_t address) const {
    std::uint64_t word = 0;
    if (address >= begin && address - begin < bytes.size() && bytes.size() - (address - begin) >= sizeof word) {
      std::memcpy(&word, bytes.data() + (address - begin), sizeof word);
      return word;
    }
    for (std::size_t i = 1; i < frames.size(); ++i) {
      if (frames[i].place == address) return frames[i].address;
      const bool has_next = has_link(i) && i + 1 < frames.size();
      if (frames[i].place == address + 8 && has_next) return frames[i + 1].place - 8;
    }
    return std::nullopt;
  }
  // False for a function that has just been entered: the linked frame is its caller's.
  bool has_link(std::size_t frame) const { return frame != 0 && frames[frame].place != (*this)[shared::Reg::sp]; }
};

// Nothing for bytes that are not a stack.
inline std::optional<StackCopy> parse_stack(std::span<const std::uint8_t> stack) {
  shared::StackHead head;
  if (stack.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, stack.data(), sizeof head);
  const std::uint64_t table = std::uint64_t{head.frames} * 8;
  if (head.frames > shared::kMaxFrames || stack.size() != sizeof head + 2 * table + head.copy_bytes)
    return std::nullopt;
  StackCopy copy{.frames = std::vector<StackCopy::Frame>(head.frames), .begin = head.copy_begin, .bytes = {}};
  std::memcpy(copy.registers.data(), head.registers, sizeof head.registers);
  const std::uint8_t* at = stack.data() + sizeof head;
  for (StackCopy::Frame& frame : copy.frames) {
    std::memcpy(&frame.address, at, 8);
    std::memcpy(&frame.place, at + table, 8);
    at += 8;
  }
  copy.bytes = stack.subspan(sizeof head + 2 * table);
  return copy;
}

}  // namespace uprobe::trace
