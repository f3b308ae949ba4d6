// SPDX-License-Identifier: MIT
// The code of a return stub (engine/shared/return_stub.h), as distances from its beginning: a thread that a signal finds there is
// where its stack tells.
#pragma once

#include <cstdint>

namespace uprobe::shared {

inline constexpr std::uint32_t kStubUnit = 32;     // bytes of a stub, and of a slot
inline constexpr std::uint32_t kStubReturns = 1;   // the address in the stub to which the body returns
inline constexpr std::uint32_t kStubSkips = 7;     // the return address is back in its place
inline constexpr std::uint32_t kStubNumbers = 12;  // the red zone is skipped
inline constexpr std::uint32_t kStubLeaves = 17;   // the number is on the stack

}  // namespace uprobe::shared
