// SPDX-License-Identifier: MIT
// Threads that are inside a displaced copy, in terms of the original program.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether an address is in the agent's own code.
bool in_agent(const ProcessBlock& block, u64 address);

// How an interrupted thread came to stop in a copy.
enum class Arrival {
  fault,   // the copy's instruction faulted: the original one did
  step,    // the trap flag
  signal,  // from outside, between two instructions
};

// Whether a thread at this address is in a copy whose instructions it has not all executed: the hit has been recorded, and at
// the original place it would either count again or be inside of a jump.
bool is_under_way(const ProcessBlock& block, u64 ip);

// Moves an interrupted thread from a copy to the place of the original program that it stands for.
// no: it is in no copy. within (step only): between two instructions of the copy that are one in the original; untouched.
// A thread that a signal finds in front of its instruction will hit the point again: that is remembered for is_repeat.
enum class Moved { no, within, to_original };
Moved move_to_original(ProcessBlock& block, SignalFrame& frame, Arrival arrival);

// The thread will arrive at the point at frame.ip, where it is in front of its instruction, once more with these registers.
void expect_repeat(ProcessBlock& block, const SignalFrame& frame);
// A handler begins with this frame: what is expected at frame.ip comes when it has returned. `shown`: returned_to will say so.
void expect_after(ProcessBlock& block, const SignalFrame& frame, bool shown);
// A handler returns with this frame: where the thread has to go on. That is in the copy when it has been shown a place in front
// of an instruction whose hit is recorded, or one that is inside of a jump by now.
u64 place_to_go_on(ProcessBlock& block, const SignalFrame& frame);
// It has not returned after all, and the frame shows `ip` again.
void not_gone_on(ProcessBlock& block, SignalFrame& frame, u64 ip);
// Nothing is expected any more of the calling thread, or of all others.
void expect_nothing(ProcessBlock& block);
void expect_nothing_of_others(ProcessBlock& block);

// Whether this hit is one that has been recorded already.
bool is_repeat(ProcessBlock& block, const Point& point, const SignalFrame& frame);

}  // namespace uprobe::agent
