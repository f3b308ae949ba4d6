// SPDX-License-Identifier: MIT
// Records of task names for the reader: a thread that ends within milliseconds has no name in /proc any more when its records
// are printed.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// The calling thread has just begun (`begins`), or has been renamed. One system call (prctl), none under a filter: not in a
// hit.
void record_task_name(ProcessBlock& block, bool begins);

// A thread may be about to get another name, which the agent does not know.
void forget_task_name(ProcessBlock& block, u32 tid);

}  // namespace uprobe::agent
