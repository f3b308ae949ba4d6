// SPDX-License-Identifier: MIT
// Where things are in a process's addresses.
#pragma once

#include <cstdint>

namespace uprobe::arch {

// Room for gigabytes that is far from all code. Libraries are at 0x7f...; programs are at 0x55... or low down. gcc's thread sanitizer
// ends a program that has anything between 0x568000000000 and 0x7e8000000000, the address sanitizer below 0x10007fff8000 (their
// mappings of shadow memory).
inline constexpr std::uint64_t kFarLowest = 0x7e81'0000'0000, kFarHighest = 0x7ef0'0000'0000;

}  // namespace uprobe::arch
