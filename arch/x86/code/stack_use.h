// SPDX-License-Identifier: MIT
// What one instruction does with the stack pointer and by way of it, for those who look for users of return addresses.
#pragma once

#include <cstdint>
#include <optional>

#include "arch/code/relocate.h"

namespace uprobe::arch {

// A place that an instruction names as `distance` from the stack pointer, or from the frame pointer, as they are in front of it.
struct StackPlace {
  bool by_frame = false;  // from the frame pointer
  std::int64_t distance = 0;
  std::uint32_t bytes = 0;  // 0: its address is taken
};

struct StackUse {
  enum class Becomes : std::uint8_t {
    same,
    from_sp,  // stack pointer + distance
    from_frame,
    unknown,
  };
  struct Register {
    Becomes becomes = Becomes::same;
    std::int64_t distance = 0;
  };
  Register sp, frame;  // after it; of a call: after the return
  // By an explicit operand.
  std::optional<StackPlace> reads, writes;
};

// Nothing when the bytes are no instruction.
std::optional<StackUse> stack_use(Bytes bytes);

}  // namespace uprobe::arch
