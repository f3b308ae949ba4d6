// SPDX-License-Identifier: MIT
// By which rule a function's caller is found, from the unwind tables of the file that the code is of. See unwind_rules.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Where the caller's frame begins: right above the return address.
enum class FrameBase : u8 {
  unknown,    // no table describes the code, or by other means than these
  stack,      // `distance` above the stack pointer
  frame,      // the same of the frame pointer
  word,       // where the word at that distance from the frame pointer says
  signal,     // the registers are in the frame of a signal
  outermost,  // there is no caller
};
// Where the caller's frame pointer is.
enum class CallersLink : u8 {
  kept,         // in the register
  below_frame,  // in memory, `link_at` from the beginning of the caller's frame
  from_link,    // in memory, `link_at` from this function's frame pointer
};
struct UnwindRule {
  FrameBase base = FrameBase::unknown;
  CallersLink link = CallersLink::kept;
  i32 distance = 0, link_at = 0;
};

// The rule for code at `address`, in a process whose block has room for rules (unwind_offset); of a call, any address in the call's
// instruction. Known rules are kept in the process block. Reads memory, any of which may be missing; reentrant at every instruction, and
// may be interrupted for good.
UnwindRule unwind_rule(ProcessBlock& block, u64 address);

}  // namespace uprobe::agent
