// SPDX-License-Identifier: MIT
// Starting the tool as a helper that the application cannot see. See helper.cpp.
#pragma once

#include "engine/shared/bootstrap.h"
#include "preload/agent.h"

namespace uprobe::agent {

struct Helper {
  shared::Bootstrap* page;
  i32 lifeline;  // cut when the helper ends
};

// Whether a seccomp filter allows all calls that starting a helper takes: to be asked before any of them is made.
bool is_safe_here();

// Starts the helper, with the page filled. `blocked`: the program's signal mask. The caller has blocked all signals but
// kOurSignals. False: the helper could not be started, and a line on stderr has said why; nothing is left behind.
bool start_helper(Helper& helper, char** environment, u64 blocked);

// Closes the lifeline. The page stays if `keep`: it tells the helper that its session has a process.
void let_go(Helper& helper, bool keep);

// One line on stderr: "uprobe: WHAT (errno ERROR); the program runs unprobed". No errno: 0.
void complain(const char* what, u32 error);
// The same for an unknown variable; the program runs without probes.
void complain_of_variable(const char* entry);

}  // namespace uprobe::agent
