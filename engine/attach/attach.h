// SPDX-License-Identifier: MIT
// Gets the agent to work in a process that runs already, and takes it out of its ways again.
#pragma once

#include <cerrno>

#include "engine/process/agent_image.h"
#include "engine/process/block.h"
#include "engine/process/processes.h"
#include "engine/target/stopped_process.h"
#include "engine/trace/area.h"

namespace uprobe::control {

// Whether a process is free for a session: Code::refused and kOccupied while another tool that lives has one there. What a dead
// one has left is taken away, from the processes that it has followed as well; they are held for that, and let go. EALREADY with
// Code::refused: it is in the session whose area has the inode `ours`.
inline constexpr int kOccupied = EUSERS;
Status make_free(pid_t pid, ino_t ours = 0);

// The second part of that for all processes that the engine of this front, which has been killed, had attached to. The first error,
// if any.
Status free_all_of(pid_t front);

// The tool that has a session in the process, and lives; 0: none.
pid_t host_of(pid_t pid);
// What its user knows a tool by: the front's process id, or its own.
pid_t known_as(pid_t tool);

// Of a process where an agent was found, or not.
bool is_in_session(pid_t pid, const Result<FoundAgent>& found);

// The agent, a block and the session area are there, the dispositions are the agent's, and it knows of each thread what it
// would have seen it do. An agent that was given back before is used again. On an error the process is as it was, but for
// memory. `found`: by find_agent() since it is held. Only where there is no session.
Result<Block> attach_agent(target::StoppedProcess& process, const Result<FoundAgent>& found, const AgentImage& agent,
                           const trace::Area& area, std::size_t points, std::size_t part = 0);

// The opposite: text, dispositions, masks and alternate stacks are the program's own, the area is unmapped; agent, block,
// islands and stacks stay for the next time. On an Error the text is the program's again if that was possible at all, and the
// agent goes on to pass signals on.
Status give_back(pid_t pid);

}  // namespace uprobe::control
