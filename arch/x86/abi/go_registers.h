// SPDX-License-Identifier: MIT
// Where Go's internal calling convention has results (abi-internal.md of the Go sources, since 1.17): numbers and addresses in these, in
// this order; floating point numbers in xmm0 to xmm14.
#pragma once

#include <cstddef>

#include "arch/shared/registers.h"

namespace uprobe::arch {

inline constexpr shared::Reg kGoNumbers[] = {shared::Reg::ax, shared::Reg::bx,  shared::Reg::cx,
                                             shared::Reg::di, shared::Reg::si,  shared::Reg::r8,
                                             shared::Reg::r9, shared::Reg::r10, shared::Reg::r11};
inline constexpr std::size_t kGoFloats = 15;

}  // namespace uprobe::arch
