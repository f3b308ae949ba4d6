// SPDX-License-Identifier: MIT
// How the agent leads a thread to a callback of the program's own test (library/uprobe/callback.h): as a call of the gate
// (arch/abi/callback_gate.h) that begins below the thread's stack pointer.
//
//   stack pointer at the hit ->  [ kRedZone bytes that the program may use ]
//                                [ CallbackEntry ]
//   stack pointer at the gate -> (its first word)
//
// All other registers are the program's. The gate puts them back and goes on at `resume`, with the stack pointer of the hit; where the
// callback lets the function return at once it goes on at `caller_ip` with `caller_sp`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arch/shared/registers.h"

namespace uprobe::shared {

struct CallbackEntry {
  std::uint64_t mark;  // callback_mark(): which callback, of which session
  std::uint64_t caller_ip, caller_sp;
  std::uint64_t kept[sizeof kKeptRegisters];  // kKeptRegisters as the caller has them
  std::uint64_t resume;
};
static_assert(sizeof(CallbackEntry) == 80 && offsetof(CallbackEntry, resume) == 72);

// So much of the stack has to be there below the entry: for the gate, the unwinder and the callback.
inline constexpr std::uint64_t kCallbackRoom = 16 << 10;

// In the memory of a program that takes callbacks. Only there is the cookie at this address: in another program, which a child has
// begun, nothing is called.
struct CallbackGate {
  std::uint64_t cookie;  // random
  std::uint64_t entry;   // address of the gate's code
};
static_assert(sizeof(CallbackGate) == 16);

constexpr std::uint64_t callback_mark(std::uint64_t number, std::uint64_t cookie) {
  return number | cookie >> 32 << 32;
}
constexpr std::uint64_t number_in(std::uint64_t mark) { return mark & 0xffffffff; }

}  // namespace uprobe::shared
