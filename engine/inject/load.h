// SPDX-License-Identifier: MIT
// Gets the agent to work: in a program that is stopped at the end of its execve, or where ld.so has mapped it.
#pragma once

#include "engine/process/agent_image.h"
#include "engine/process/block.h"
#include "engine/process/mapped_memory.h"
#include "engine/target/ptrace_target.h"
#include "engine/trace/area.h"

namespace uprobe::control {

// Maps the agent, a process block for about `points` points and the session area; installs the signal handlers. Every
// descriptor that this opens in the target is closed again. On an error the handlers are not installed and what was mapped is
// unmapped: the program can run, untraced.
// `part`: the live part that the process gets.
Result<Block> load_agent(target::PtraceTarget& target, const AgentImage& agent, const trace::Area& area,
                         std::size_t points, std::size_t part = 0);

// The second part of it, for an agent that is mapped already and a target whose signals are held back or deliverable.
// `blocked`: the signal mask that the program believes to begin with; that kOurSignals are open in fact is the caller's part.
Result<Block> install_agent(target::Target& target, const MappedAgent& agent, const trace::Area& area,
                            std::size_t points, std::uint64_t blocked, std::size_t part = 0);

// The first half of that: block and area are there and the agent knows of them; the handlers are still the program's.
Result<Block> place_block(target::Target& target, const MappedAgent& agent, const trace::Area& area, std::size_t points,
                          std::uint64_t blocked, std::size_t part = 0);
// The session area alone, for an agent that has a block.
Result<Addr> place_area(target::Target& target, const trace::Area& area, std::size_t part = 0);

// In a process that has the area at `base`: another live part in the place of its own, mapped over it. On an error some of it may be
// the old one yet.
Status replace_part(target::Target& target, Addr base, const trace::Area& area, std::size_t part);
// Memory of the process's own in that place, empty, which nothing reads.
Status cover_part(target::Target& target, Addr base, const trace::Area& area);

// Whether nothing can be executed there: where all that is readable is executable (the personality READ_IMPLIES_EXEC) nothing
// faults.
bool is_data(target::Target& target, Addr at);

// Dispositions as they were, when the points could not be armed. The text must hold none any more.
Status uninstall_handlers(target::Target& target, Block& block);

}  // namespace uprobe::control
