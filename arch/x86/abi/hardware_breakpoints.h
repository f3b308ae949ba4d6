// SPDX-License-Identifier: MIT
// The processor's breakpoints that change no byte of the code.
#pragma once

namespace uprobe::arch {

inline constexpr unsigned kHardwareBreakpoints = 4;  // of a thread, all users together (SDM vol. 3, 18.2)

}  // namespace uprobe::arch
