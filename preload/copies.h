// SPDX-License-Identifier: MIT
// Threads inside a displaced copy, in terms of the original program.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether an address is in the agent's own code.
bool in_agent(const ProcessBlock& block, u64 address);

// How an interrupted thread came to stop in a copy.
enum class Arrival {
  fault,   // the copy's instruction faulted, as the original would have
  step,    // the trap flag
  signal,  // between two instructions, from outside
};

// Whether a thread at this address is in a copy with instructions still to execute: its hit is recorded, and at the original
// place it would hit again or be inside a jump.
bool is_under_way(const ProcessBlock& block, u64 ip);

// Moves an interrupted thread from a copy to the corresponding place in the original program.
// no: it is in no copy. within (step only): between two instructions of the copy that stand for one original; not moved.
// A thread that a signal finds before its instruction will hit the point again: is_repeat will know it.
enum class Moved { no, within, to_original };
Moved move_to_original(ProcessBlock& block, SignalFrame& frame, Arrival arrival);

// The thread will come once more, with these registers, to the point at frame.ip, before whose instruction it stands.
void expect_repeat(ProcessBlock& block, const SignalFrame& frame);
// A handler begins with this frame: a re-execution expected at frame.ip comes after it returns. `shown`: the agent will see
// that.
void expect_after(ProcessBlock& block, const SignalFrame& frame, bool shown);
// A handler returns with this frame: the address at which the thread goes on. It is in the copy if the handler was shown a
// place before an instruction whose hit is recorded, or a place that is now inside a jump.
u64 place_to_go_on(ProcessBlock& block, const SignalFrame& frame);
// The handler has not returned after all, and the frame shows `ip` again.
void not_gone_on(ProcessBlock& block, SignalFrame& frame, u64 ip);
// Forgets the re-executions of the calling thread, or of all others.
void expect_nothing(ProcessBlock& block);
void expect_nothing_of_others(ProcessBlock& block);

// Whether this hit has been recorded already.
bool is_repeat(ProcessBlock& block, const Point& point, const SignalFrame& frame);

}  // namespace uprobe::agent
