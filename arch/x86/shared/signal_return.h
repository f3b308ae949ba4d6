// SPDX-License-Identifier: MIT
// Where the handlers of signals return to: the bytes by which unwinders and debuggers know the frame of a signal.
#pragma once

#include <cstdint>

namespace uprobe::shared {

// mov $15, %rax; syscall
inline constexpr std::uint8_t kSignalReturn[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
inline constexpr std::uint32_t kSignalReturnCall = 7;  // where in it the call is

// Whether these bytes load the number, which is all that is left where the call has a breakpoint.
constexpr bool loads_signal_return(const std::uint8_t* bytes) {
  for (std::uint32_t i = 0; i < kSignalReturnCall; ++i)
    if (bytes[i] != kSignalReturn[i]) return false;
  return true;
}

}  // namespace uprobe::shared
