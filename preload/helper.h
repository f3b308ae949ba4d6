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

// Whether a seccomp filter lets the calls pass that all this takes: to be asked before any other of them is made.
bool is_safe_here();

// Starts it, with the page filled. `blocked`: the program's signal mask. The caller has all signals blocked but ours.
// False: the helper could not be started, and a line on stderr has said why; nothing is left behind.
bool start_helper(Helper& helper, char** environment, u64 blocked);

// Closes the lifeline. The page stays if `keep`: the sign for the helper that its session has a process.
void let_go(Helper& helper, bool keep);

// One line on stderr: "uprobe: WHAT (errno ERROR); the program runs unprobed". No errno: 0.
void complain(const char* what, u32 error);
// The same about the name of a variable that nothing reads; no probes are given.
void complain_of_variable(const char* entry);

}  // namespace uprobe::agent
