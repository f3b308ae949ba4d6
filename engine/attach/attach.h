// SPDX-License-Identifier: MIT
// Brings the agent into a running process, and undoes that.
#pragma once

#include <chrono>

#include "engine/inject/seccomp.h"
#include "engine/process/agent_image.h"
#include "engine/process/block.h"
#include "engine/process/processes.h"
#include "engine/target/stopped_process.h"
#include "engine/trace/area.h"

namespace uprobe::control {

// Frees a process for a session. Code::refused with Retry::join while another living tool has a session there. If that tool is
// dead, its session is removed, also from the other processes that it followed; they are stopped for that and released.
// Retry::needless: the process is in the session whose area has the inode `ours`.
Status make_free(pid_t pid, ino_t ours = 0);

// Removes the session of the killed tracer that `launcher` had, from all processes that it had attached to. Returns the first
// error, if any.
Status free_all_of(pid_t launcher);

// The living tool that has a session in the process; 0: none.
pid_t owner_of(pid_t pid);
// The process id by which its user knows a tool: its launcher's, or its own.
pid_t known_as(pid_t tool);

// `found`: the result of find_agent(), which may be an error.
bool is_in_session(pid_t pid, const Result<FoundAgent>& found);

// Brings in the agent, a block and the session area; the dispositions become the agent's, and the agent learns about each
// thread what it would have seen the thread do. An agent that was given back earlier is used again. On an error the process is
// as it was, except for memory. `found`: by find_agent() after the process was stopped. Only where there is no session. `filters`: by
// judge_filters().
Result<Block> attach_agent(target::StoppedProcess& process, const Result<FoundAgent>& found,
                           const FilterVerdict& filters, const AgentImage& agent, const trace::Area& area,
                           const BlockNeeds& needs, std::size_t part = 0);

// The opposite: text, dispositions, masks and alternate stacks are the program's own again, the area is unmapped; agent, block,
// islands and stacks stay for the next session. On an Error the text is the program's again if that was possible at all, and
// the agent goes on passing signals to the program. `patience`: as StoppedProcess::hold() has it.
Status give_back(pid_t pid, std::chrono::milliseconds patience = target::StoppedProcess::kPatience);

// The same on a thread of its own, as disarm_running() does it.
Status give_back_apart(pid_t pid, std::chrono::milliseconds patience);

// Whether a thread of the process has blocked signals that the kernel does not hold back as long as there are breakpoints: it needs
// give_back(), also where its other threads would do without.
bool has_blocked_signals(pid_t pid);

}  // namespace uprobe::control
