// SPDX-License-Identifier: MIT
// One step from a frame to its caller's, by a row of unwind tables (call_frames.h) and the known registers and memory. A value
// that follows from an unknown value is unknown.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/symbolize/call_frames.h"

namespace uprobe::elf {

// The registers of one frame, by number; the last is its code address. Nothing: unknown.
using FrameState = std::array<std::optional<std::uint64_t>, kFrameRegisters>;

class FrameMemory {
 public:
  FrameMemory() = default;
  FrameMemory(const FrameMemory&) = delete;
  FrameMemory& operator=(const FrameMemory&) = delete;
  virtual ~FrameMemory() = default;
  // The word at any address; nothing: not known.
  virtual std::optional<std::uint64_t> load(std::uint64_t address) const = 0;
};

enum class Step : std::uint8_t {
  up,       // the state is the caller's
  end,      // the tables say that there is no caller
  unknown,  // the caller cannot be known; the state is unchanged
};

Step step_up(const FrameRow& row, const FrameMemory& memory, FrameState& state);

// The canonical frame address: the stack pointer before the call.
std::optional<std::uint64_t> frame_top(const FrameRow& row, const FrameMemory& memory, const FrameState& state);

// Evaluates an expression (DWARF 5, section 2.5) of a frame, bounded in steps and depth; its stack begins with `first`, if
// given.
std::optional<std::uint64_t> evaluate(BytesView expression, std::optional<std::uint64_t> first,
                                      const FrameMemory& memory, const FrameState& state);

}  // namespace uprobe::elf
