// SPDX-License-Identifier: MIT
// Returns through a stub. See stubs.cpp and engine/shared/return_stub.h.
#pragma once

#include "arch/entry/signal_frame.h"
#include "engine/shared/return_stub.h"
#include "preload/agent.h"

namespace uprobe::agent {

// stub.S of arch/entry
extern "C" {
extern const u8 uprobe_return_stubs[] __attribute__((visibility("hidden")));
extern shared::ReturnSlot uprobe_return_slots[] __attribute__((visibility("hidden")));
}

inline const Point& point_of(const ProcessBlock& block, const shared::ReturnSlot& slot) {
  return at_offset<Point>(&block, block.point_offset)[slot.point];
}

inline bool is_in_stub(u64 address) {
  return address - reinterpret_cast<u64>(uprobe_return_stubs) < u64{shared::kReturnStubs} * shared::kStubUnit;
}

// The program's return address for one in a stub; any other stays. The word may lie in a ring, where others write: each word is
// read once.
inline u64 past_stubs(u64 address) {
  asm("" : "+r"(address));
  if (!is_in_stub(address)) return address;
  const u64 number = (address - reinterpret_cast<u64>(uprobe_return_stubs)) / shared::kStubUnit;
  const u64 root = uprobe_return_slots[number].root;
  return root != 0 ? root : address;
}

// A thread is at the first instruction of a function whose hit has been recorded: if a consumer wants the return, this replaces
// the return address at `sp` by a stub's; if no stub can be had, the address stays and the return is counted as
// missed. No system call, no lock, reentrant at every instruction.
void lead_through_stub(ProcessBlock& block, const Point& point, u64 sp, bool may_fault);

// Whether the return address at `sp` leads back through a stub of the point: a call of the function is under way
// there that has not returned. `sp` may be anything.
bool is_under_way(const ProcessBlock& block, const Point& point, u64 sp);

// Moves an interrupted thread out of the agent's code for a stub, after its return has been recorded, to the return address.
// False: it is not there.
bool leave_stub(SignalFrame& frame);

// A function has returned to its stub and the thread cannot go on there, for want of stack or because the application
// single-steps it: records the return and moves the thread to its return address. False: it is not there.
bool finish_return(ProcessBlock& block, SignalFrame& frame, bool may_fault);

// Whether the int3 before `ip` is the agent's own, for a thread with deferred signals: leave_stub knows the return path.
bool is_end_of_return(u64 ip);

}  // namespace uprobe::agent
