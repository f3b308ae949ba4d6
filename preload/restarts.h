// SPDX-License-Identifier: MIT
// Restartable sequences (rseq) of the program that no file shows: an int3 inside one makes the kernel abort it.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether the thread has executed an int3 inside a restartable sequence. The kernel has then moved it to the abort handler
// before the signal: the instruction before frame.ip cannot trap. System calls (rseq, which changes nothing), none under a
// filter.
bool is_abort(ProcessBlock& block, const SignalFrame& frame);

// Has the tool remove the probes from the sequence. The thread goes on at the abort handler, as every aborted thread does.
void leave_sequence(ProcessBlock& block, const SignalFrame& frame);

}  // namespace uprobe::agent
