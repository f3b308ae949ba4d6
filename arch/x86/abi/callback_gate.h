// SPDX-License-Identifier: MIT
// The gate by which a thread comes from a probed function to a callback in its own program, and back (arch/shared/callback_entry.h).
// It is code of the program, like any function that the thread might call here: no signal is handled, no lock of the tool is held. All
// registers and the extended state are kept; where the processor has no XSAVE there is no gate. Unwinders go from the gate to the
// caller of the probed function.
#pragma once

#include <cpuid.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "arch/shared/callback_entry.h"

namespace uprobe::arch {

// As the gate pushes them.
struct CallbackFrame {
  std::uint64_t ax, cx, dx, bx, bp, si, di, r8, r9, r10, r11, r12, r13, r14, r15, flags;
  shared::CallbackEntry entry;
};
static_assert(sizeof(CallbackFrame) == 208 && offsetof(CallbackFrame, entry) == 128);

// The area of XSAVE (SDM vol. 1, 13.4).
struct ExtendedState {
  std::uint8_t legacy[512];  // the lowest 16 bytes of vector register i at kFirstVector + 16 * i
  std::uint64_t present;     // XSTATE_BV
  std::uint64_t header[7];
};
inline constexpr std::size_t kFirstVector = 160;
inline constexpr std::uint64_t kVectorsPresent = 2;

extern "C" {
__attribute__((visibility("hidden"))) void uprobe_callback_gate();
// Bytes of an ExtendedState with all that the processor keeps; 0: not known yet, no thread may come.
extern __attribute__((visibility("hidden"))) std::uint64_t uprobe_callback_state_bytes;
// Defined by the library. True: the function returns at once.
__attribute__((visibility("hidden"))) bool uprobe_callback_dispatch(CallbackFrame* frame, ExtendedState* state);
// Where that returns to.
extern __attribute__((visibility("hidden"))) const char uprobe_callback_dispatched[];
}

// The address in the gate that the callers of a callback have.
inline std::uint64_t address_in_gate() { return reinterpret_cast<std::uintptr_t>(uprobe_callback_dispatched); }

// 0: the processor has no XSAVE, or the kernel does not use it.
inline std::uint64_t extended_state_bytes() {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return 0;
  return __get_cpuid_count(13, 0, &a, &b, &c, &d) == 0 ? 0 : b;
}

// Whether the thread has a shadow stack, under which no thread can be led anywhere.
inline bool has_shadow_stack() {
  std::uint64_t pointer = 0;
  asm volatile(".byte 0xf3, 0x48, 0x0f, 0x1e, 0xc8" : "+a"(pointer));  // rdsspq %rax
  return pointer != 0;
}

// Arguments of a function at its first instruction (System V ABI x86-64, 3.2.3), each counted among those of its kind.
inline constexpr std::size_t kIntegersInRegisters = 6, kFloatsInRegisters = 8;
inline std::uint64_t integer_argument(const CallbackFrame& f, std::size_t i) {
  constexpr std::uint64_t CallbackFrame::*kPlaces[kIntegersInRegisters] = {&CallbackFrame::di, &CallbackFrame::si,
                                                                           &CallbackFrame::dx, &CallbackFrame::cx,
                                                                           &CallbackFrame::r8, &CallbackFrame::r9};
  return f.*kPlaces[i];
}
// The word `i` of the arguments on the stack.
inline std::uint64_t stack_argument(const CallbackFrame& f, std::size_t i) {
  return reinterpret_cast<const std::uint64_t*>(f.entry.caller_sp)[i];
}
inline std::uint64_t vector_word(const ExtendedState& state, std::size_t i) {
  std::uint64_t word = 0;
  std::memcpy(&word, state.legacy + kFirstVector + 16 * i, sizeof word);
  return word;
}

inline std::uint64_t& result_of(CallbackFrame& f) { return f.ax; }
inline void set_vector_result(ExtendedState& state, std::uint64_t word) {
  std::memcpy(state.legacy + kFirstVector, &word, sizeof word);
  state.present |= kVectorsPresent;
}
inline void return_at_once(CallbackFrame& f) { f.entry.resume = f.entry.caller_ip; }

}  // namespace uprobe::arch
