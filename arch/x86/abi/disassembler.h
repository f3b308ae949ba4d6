// SPDX-License-Identifier: MIT
// How Capstone is asked for this machine's instructions.
#pragma once

#include <capstone/capstone.h>

namespace uprobe::arch {

inline constexpr cs_arch kCapstoneArch = CS_ARCH_X86;
inline constexpr cs_mode kCapstoneMode = CS_MODE_64;

}  // namespace uprobe::arch
