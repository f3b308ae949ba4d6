// SPDX-License-Identifier: MIT
// What one instruction does with the stack pointer and by way of it, for those who look for users of return addresses.
#pragma once

#include <cstdint>
#include <optional>

#include "arch/code/relocate.h"

namespace uprobe::arch {

// A place that an instruction names as `distance` from rsp, or from rbp, as they are in front of it.
struct StackPlace {
  bool by_frame = false;  // from rbp
  std::int64_t distance = 0;
  std::uint32_t bytes = 0;  // 0: its address is taken
};

struct StackUse {
  enum class Becomes : std::uint8_t {
    same,
    from_rsp,  // rsp + distance
    from_rbp,
    unknown,
  };
  struct Register {
    Becomes becomes = Becomes::same;
    std::int64_t distance = 0;
  };
  Register rsp, rbp;  // behind it; of a call: behind the return
  // By an explicit operand.
  std::optional<StackPlace> reads, writes;
};

// Nothing when the bytes are no instruction.
std::optional<StackUse> stack_use(Bytes bytes);

}  // namespace uprobe::arch
