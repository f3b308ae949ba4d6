// SPDX-License-Identifier: MIT
// Finds the processes of a session, and takes probes out of them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "engine/base/address.h"
#include "engine/base/result.h"
#include "engine/process/agent_image.h"
#include "engine/shared/process_block.h"
#include "engine/target/process_list.h"
#include "engine/target/target.h"

namespace uprobe::control {

// Every process that maps the file with this inode (the session's memfd), of the processes whose /proc/PID/maps this process
// may read. `earlier`: processes that are known not to map it.
std::vector<pid_t> processes_mapping(ino_t memfd, const target::EarlierProcesses& earlier = {});

// Every process that maps a session's area, with the session and the address.
struct InSession {
  pid_t pid;
  ino_t session;
  Addr area;
};
std::vector<InSession> processes_in_sessions();

// Whether the mapping is part of the shared memory of any session.
bool is_session_area(const target::Mapping& m);

// The part of a process's address space that belongs to the session whose plan it maps at `area`: [begin, end), including the
// mailbox. Empty: none.
struct AreaRange {
  Addr begin, end;
};
AreaRange area_range(const std::vector<target::Mapping>& maps, Addr area);

// Whether a process is the tool of the session with this inode: a tool keeps the descriptor, a traced process has none. A
// process can be the tool of one session and traced by another.
bool is_tool_of(pid_t pid, ino_t memfd);

// Whether another tool, which is alive, is changing the process with this block.
bool is_being_changed(const shared::ProcessBlock& block);

// Whether a process maps any session.
bool has_session(pid_t pid);

// The process of a thread; 0 if the thread is gone.
pid_t process_of_thread(pid_t tid);

using target::threads_of;

// Restore the original bytes at every armed point of a running process, for good: Armer arms nothing there again. The tables
// stay, so a thread that has already trapped still finds its copy. If the process ends during this, that is no error. Long
// jumps in padding stay, unreachable, because a thread may still be about to execute one. An Error also when some of the tool's
// breakpoints had to stay; the process then still needs the agent's handlers. disarm_waiting: all threads of the process are
// stopped, or wait for the tool. disarm_running stops them for a moment, for which it waits some tenths of a second; where it cannot,
// or may not, the internal points stay, which is an Error.
Status disarm_waiting(pid_t pid, Addr block);
enum class Stop { yes, no };
Status disarm_running(pid_t pid, Addr block, Stop stop = Stop::yes);

// The agent in a process, and its block; of any session. Code::not_found when there is no agent that has begun to work,
// Code::refused when it is one of another version.
struct FoundAgent {
  MappedAgent agent;
  Addr block;
};
Result<FoundAgent> find_agent(pid_t pid);

// The process block that the agent in a process uses, of any session.
Result<Addr> find_block(pid_t pid);

// Whether execve of the file would give more rights than this process has: set-id bits or capabilities. A traced program would
// not get them.
bool gains_privileges(const std::string& path);

}  // namespace uprobe::control
