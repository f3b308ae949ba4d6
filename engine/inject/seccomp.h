// SPDX-License-Identifier: MIT
// The target's seccomp filters, as far as they concern the agent: whether they allow the system calls of agents_calls.h.
//
// Filters that the tool may read are run on each call (seccomp_program.h). Filters that the tool is under as well are tried out by a
// child of the tool, which makes the calls.
#pragma once

#include <sys/types.h>

#include <string>

#include "engine/target/stopped_process.h"

namespace uprobe::control {

// Whether the agent may get into a held process, and what it may do there afterwards.
struct FilterVerdict {
  std::string forbidden;   // a call that the agent does without, so that it stays quiet (kBlockFiltered); empty: none
  bool is_logged = false;  // the filters log the agent's calls
};

// Code::refused: the process has filters that cannot be judged, or that do not even allow what the agent does in the program's
// stead; no call will be made in it. `trusts`: the user has said that filters that cannot be read allow all calls.
Result<FilterVerdict> judge_filters(target::StoppedProcess& process, bool trusts);
// What the user should know; empty: nothing.
std::string describe(pid_t pid, const FilterVerdict& verdict);

// Of a process that is not held, nor touched: what attaching will make of its filters, as the end of a sentence about it; empty: it has
// none. An error where it will be refused for them.
Result<std::string> foretell(pid_t pid, bool trusts);

// Whether a filter may kill a program that was started under the tool, or has become one, for a system call that the agent makes on
// its own.
bool may_be_killed_for_calls(pid_t pid);
bool may_be_killed_for_calls(target::Target& target);

}  // namespace uprobe::control
