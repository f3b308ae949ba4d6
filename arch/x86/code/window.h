// SPDX-License-Identifier: MIT
// The displaced copy of several instructions in a row: what a jump over all of them leads to.
#pragma once

#include "arch/code/relocate.h"

namespace uprobe::arch {

// A window never has more: four bytes that are too short for a jump, and one more instruction.
inline constexpr unsigned kMaxWindowBytes = 4 + kMaxInsnBytes;

// The copies of all instructions of `window`, whole ones that lie in a row from `from`, in one piece made to run at `to`,
// within +-2 GiB. It starts with the first one and ends with a jump back after the last, where control can fall through. The
// marks are those of all copies: at each moment a thread in the copy stands at one instruction of the window, or after
// it. Refused (Code::refused, reason without address) when one of them cannot be displaced, when a call or a system call is
// not the last (a thread would come back, or wait, inside the window), or when one branches to another than the first. The copy
// goes on at `next` in place of what is after the window when that is given.
Result<Copy> displace_window(Bytes window, Addr from, Addr to, Addr next = {});

}  // namespace uprobe::arch
