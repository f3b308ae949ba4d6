// SPDX-License-Identifier: MIT
// The frame that the kernel builds for a signal handler (x86-64: arch/x86/include/uapi/asm/sigcontext.h, ucontext.h,
// asm-generic/siginfo.h), as far as the agent reads it. Offsets are ABI; entry.S uses the same ones as numbers.
#pragma once

#include "arch/shared/text.h"
#include "engine/shared/layout.h"

namespace uprobe::agent {

using shared::i32;
using shared::i64;
using shared::u16;
using shared::u32;
using shared::u64;
using shared::u8;

struct SignalInfo {
  i32 signal;
  i32 error;
  i32 code;
  i32 pad;
  u64 address;  // si_addr for faults
  u8 rest[104];
};
static_assert(sizeof(SignalInfo) == 128);

inline constexpr i32 kSigTrap = 5, kSigBus = 7, kSigSegv = 11;  // asm/signal.h

// si_code of an int3 (asm/traps: force_sig), as opposed to a breakpoint reported by a debug register.
inline constexpr i32 kSiKernel = 0x80;

// The same of a breakpoint of perf_event_open (uapi/asm-generic/siginfo.h, TRAP_PERF). It comes before the instruction has run, and
// the kernel has set the flag in the frame by which the processor passes it once.
inline constexpr i32 kTrapPerf = 6;
struct PerfTrap {
  u64 data;  // perf_event_attr::sig_data
  u32 type;
  u32 flags;  // kTrapLate
};
inline constexpr u32 kTrapLate = 1;  // TRAP_PERF_FLAG_ASYNC: the signal was blocked, and the thread is elsewhere by now
inline PerfTrap perf_trap(const SignalInfo& info) {
  PerfTrap trap;
  __builtin_memcpy(&trap, info.rest, sizeof trap);
  return trap;
}

inline constexpr u64 kTrapFlag = 0x100, kArithmeticFlags = 0x8d5;  // TF; CF PF AF ZF SF OF of SignalFrame::flags

struct SignalFrame {
  u64 uc_flags;
  u64 uc_link;
  u64 stack_base;
  i32 stack_flags;
  i32 stack_pad;
  u64 stack_size;
  u64 r8, r9, r10, r11, r12, r13, r14, r15;
  u64 di, si, bp, bx, dx, ax, cx, sp, ip, flags;
  u16 cs, gs, fs, ss;
  u64 error, trap_number, old_mask, fault_address;
  u64 fpstate;
  u64 reserved[8];
  u64 mask;  // uc_sigmask: what was blocked when the signal came
};
static_assert(offsetof(SignalFrame, r8) == 40 && offsetof(SignalFrame, sp) == 160 && offsetof(SignalFrame, ip) == 168);
static_assert(offsetof(SignalFrame, flags) == 176 && offsetof(SignalFrame, fpstate) == 224);
static_assert(offsetof(SignalFrame, mask) == 296);

static_assert(sizeof(SignalFrame) == 304);

// What the kernel puts on the stack (arch/x86/include/asm/sigframe.h): rsp at the entry of a handler.
struct HandlerFrame {
  u64 restorer;
  SignalFrame context;
  SignalInfo info;
};
static_assert(offsetof(HandlerFrame, context) == 8 && offsetof(HandlerFrame, info) == 312);
static_assert(sizeof(HandlerFrame) == 440);

// `fresh` is a copy of the frame of a handler that has been entered at `interrupted` and has not run yet, when its next signal comes.
// Its extended state is initial there.
inline void interrupt_handler(SignalFrame& fresh, HandlerFrame& below, u64 interrupted) {
  constexpr u64 kHandlerClears = 0x10500;  // TF, DF, RF: what the kernel clears at the entry of a handler
  fresh.ip = interrupted;
  fresh.sp = reinterpret_cast<u64>(&below);
  fresh.di = static_cast<u64>(static_cast<u32>(below.info.signal));
  fresh.si = reinterpret_cast<u64>(&below.info);
  fresh.dx = reinterpret_cast<u64>(&below.context);
  fresh.ax = 0;
  fresh.flags &= ~kHandlerClears;
  fresh.fpstate = 0;
}

inline HandlerFrame& frame_around(SignalFrame& context) {
  return *reinterpret_cast<HandlerFrame*>(reinterpret_cast<u8*>(&context) - offsetof(HandlerFrame, context));
}

inline constexpr i32 kStackAutodisarm = static_cast<i32>(1u << 31);  // SS_AUTODISARM

// What the registers of the interrupted code are for.
inline u64& call_argument(SignalFrame& f, u32 index) {
  switch (index) {
    case 0:
      return f.di;
    case 1:
      return f.si;
    case 2:
      return f.dx;
    case 3:
      return f.r10;
    case 4:
      return f.r8;
    default:
      return f.r9;
  }
}
inline u64 call_argument(const SignalFrame& f, u32 index) { return call_argument(const_cast<SignalFrame&>(f), index); }
// Of the system call that the thread is about to make, or its result after it; and the same of a function.
inline long call_number(const SignalFrame& f) { return static_cast<long>(f.ax); }
inline void set_call_number(SignalFrame& f, long number) { f.ax = static_cast<u64>(number); }
inline long call_result(const SignalFrame& f) { return static_cast<long>(f.ax); }
inline u64 function_argument(const SignalFrame& f, u32 index) { return call_argument(f, index); }  // 0 to 2
static_assert(shared::kArgumentRegisters[2] == shared::kCallArgumentRegisters[2]);

// A system call at `address` has been made: what `syscall` leaves behind (SDM vol. 2, SYSCALL), rcx = return address, r11 = flags.
inline void finish_call(SignalFrame& f, u64 address, long result) {
  f.ax = static_cast<u64>(result);
  f.cx = address + shared::kSystemCallBytes;
  f.r11 = f.flags;
  f.ip = address + shared::kSystemCallBytes;
}
// The thread has made a call in a copy: what that has left of its place becomes that of the frame's.
inline void hide_call_of_copy(SignalFrame& f) { f.cx = f.ip; }

// The function that the thread is at the beginning of returns.
inline void return_from_function(SignalFrame& f, u64 to, u64 result) {
  f.ax = result;
  f.ip = to;
  f.sp += 8;
}

// A general register other than the stack pointer; others are left alone, and read as 0.
inline u64* register_in(SignalFrame& f, shared::Reg reg) {
  using shared::Reg;
  constexpr u64 SignalFrame::*kPlaces[] = {&SignalFrame::ax,  &SignalFrame::bx,  &SignalFrame::cx,  &SignalFrame::dx,
                                           &SignalFrame::si,  &SignalFrame::di,  &SignalFrame::bp,  nullptr,
                                           &SignalFrame::r8,  &SignalFrame::r9,  &SignalFrame::r10, &SignalFrame::r11,
                                           &SignalFrame::r12, &SignalFrame::r13, &SignalFrame::r14, &SignalFrame::r15};
  const u32 index = static_cast<u32>(reg);
  return index < sizeof kPlaces / sizeof kPlaces[0] && reg != Reg::sp ? &(f.*kPlaces[index]) : nullptr;
}
inline void set_register(SignalFrame& f, shared::Reg reg, u64 value) {
  if (u64* place = register_in(f, reg)) *place = value;
}
inline u64 register_of(SignalFrame& f, shared::Reg reg) {
  const u64* place = register_in(f, reg);
  return place != nullptr ? *place : 0;
}

// Into uprobe_iterate (stub.S), which goes on at `copy`.
inline void enter_iterate(SignalFrame& f, u64 copy, u64 iterate) {
  f.r11 = copy;
  f.ip = iterate;
}

// All state of the thread that an instruction could depend on.
inline u64 digest(const SignalFrame& f) {
  constexpr u64 kVisibleFlags = 0x40cd5;  // CF PF AF ZF SF DF OF, AC
  u64 state = f.flags & kVisibleFlags;
  for (const u64* word = &f.r8; word <= &f.sp; ++word) {
    state = (state ^ *word) * 0x9e3779b97f4a7c15ull;
    state ^= state >> 29;
  }
  return state;
}

// The registers of the interrupted code, `ip` as given.
inline shared::Registers registers_of(const SignalFrame& f, u64 ip) {
  using shared::Reg;
  shared::Registers r;
  r[Reg::ax] = f.ax, r[Reg::bx] = f.bx, r[Reg::cx] = f.cx, r[Reg::dx] = f.dx;
  r[Reg::si] = f.si, r[Reg::di] = f.di, r[Reg::bp] = f.bp, r[Reg::sp] = f.sp;
  r[Reg::r8] = f.r8, r[Reg::r9] = f.r9, r[Reg::r10] = f.r10, r[Reg::r11] = f.r11;
  r[Reg::r12] = f.r12, r[Reg::r13] = f.r13, r[Reg::r14] = f.r14, r[Reg::r15] = f.r15;
  r[Reg::ip] = ip, r[Reg::flags] = f.flags, r[Reg::cs] = f.cs, r[Reg::ss] = f.ss;
  r[Reg::orig_ax] = ~u64{0};  // as the kernel has it outside of system calls
  return r;
}

}  // namespace uprobe::agent
