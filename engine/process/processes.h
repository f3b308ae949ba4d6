// SPDX-License-Identifier: MIT
// Which processes belong to a session, and taking probes out of them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "engine/base/address.h"
#include "engine/base/result.h"
#include "engine/process/agent_image.h"
#include "engine/target/target.h"

namespace uprobe::control {

// Every process that maps the file with this inode (the session's memfd): found in /proc/*/maps of the processes that we
// may look at.
std::vector<pid_t> processes_mapping(ino_t memfd);

// Every process that maps any session's area: which one's and where.
struct InSession {
  pid_t pid;
  ino_t session;
  Addr area;
};
std::vector<InSession> processes_in_sessions();

// Whether it is part of a session's shared memory, whoever's.
bool is_session_area(const target::Mapping& m);

// What a process has of a session whose plan it maps at `area`: [begin, end), the mailbox included. Empty: nothing.
struct AreaRange {
  Addr begin, end;
};
AreaRange area_range(const std::vector<target::Mapping>& maps, Addr area);

// Whether a process has the session with this inode as its tool: a tool keeps the descriptor, a traced process has none. A process
// may be both, of different sessions.
bool is_tool_of(pid_t pid, ino_t memfd);

// Whether a process maps any session.
bool has_session(pid_t pid);

// The process that a thread belongs to; 0 if it is gone.
pid_t process_of_thread(pid_t tid);

using target::threads_of;

// Whether a debugger has the process, and may have breakpoints in it, which it will replace by what it has found there. True
// when that cannot be told.
bool is_traced(pid_t pid);

// Writes the original bytes back over every armed point of a running process, for good: Armer arms nothing there again. A
// thread that has trapped already still finds its copy: the tables stay. Errors of a process that ends meanwhile are no errors.
// Long jumps in padding stay, unreachable: a thread may have been about to execute one for as long as it likes. An Error also
// when breakpoints of ours had to stay; the process goes on needing the agent's handlers then.
// The former: all threads of the process are stopped, or wait for the tool. The latter stops them for a moment; where that cannot be
// the agent's own points stay, which is an Error.
Status disarm_waiting(pid_t pid, Addr block);
Status disarm_running(pid_t pid, Addr block);

// The agent in a process and its block, whoever's session it is. Code::not_found when there is none that has begun to work,
// Code::refused when there is one of another version.
struct FoundAgent {
  MappedAgent agent;
  Addr block;
};
Result<FoundAgent> find_agent(pid_t pid);

// The process block that the agent in a process uses, whoever's session it is.
Result<Addr> find_block(pid_t pid);

// Whether execve of the file would give more rights than we have: set-id bits or capabilities. Traced, the program would run
// without them.
bool gains_privileges(const std::string& path);
// Whether it would change the rights of a process that executes it.
bool gives_privileges(const std::string& path);

}  // namespace uprobe::control
