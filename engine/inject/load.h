// SPDX-License-Identifier: MIT
// Brings the agent to work: in a program that is stopped at the end of its execve, or where ld.so has mapped the agent.
#pragma once

#include "engine/process/agent_image.h"
#include "engine/process/block.h"
#include "engine/process/mapped_memory.h"
#include "engine/target/ptrace_target.h"
#include "engine/trace/area.h"

namespace uprobe::control {

// A session takes no more than such a part of the address space of a program for which that is limited.
inline constexpr std::uint64_t kAddressShare = 8;

// Maps the agent, a process block with room for `needs` and the session area, and installs the signal handlers. Closes
// every descriptor that it opens in the target. On an error no handler is installed and everything is unmapped again: the
// program can run, untraced. `part`: the live part for the process.
Result<Block> load_agent(target::PtraceTarget& target, const AgentImage& agent, const trace::Area& area,
                         const BlockNeeds& needs, std::size_t part = 0);

// The same for an agent that is mapped already, in a target whose signals are held back or deliverable. `blocked`: the
// program's virtual signal mask at the beginning; the caller ensures that kOurSignals are really unblocked.
Result<Block> install_agent(target::Target& target, const MappedAgent& agent, const trace::Area& area,
                            const BlockNeeds& needs, std::uint64_t blocked, std::size_t part = 0);

// The first half of that: makes block and area and tells the agent; the handlers are still the program's.
Result<Block> place_block(target::Target& target, const MappedAgent& agent, const trace::Area& area,
                          const BlockNeeds& needs, std::uint64_t blocked, std::size_t part = 0);
// The session area alone, for an agent that has a block.
Result<Addr> place_area(target::Target& target, const trace::Area& area, std::size_t part = 0);

// Replaces the live part of the area at `base` by another one, mapped over it. On an error a part of the old one may still be
// there.
Status replace_part(target::Target& target, Addr base, const trace::Area& area, std::size_t part);
// Maps private, empty memory there, which no process reads.
Status cover_part(target::Target& target, Addr base, const trace::Area& area);

// Whether executing there would fault. It does not where everything readable is executable (the personality READ_IMPLIES_EXEC).
bool is_data(target::Target& target, Addr at);

// Restores the dispositions when the points could not be armed. The text must not contain any point.
Status uninstall_handlers(target::Target& target, Block& block);

}  // namespace uprobe::control
