// SPDX-License-Identifier: MIT
// A look at one thread of a running process: where it may continue. The other threads run on.
//
// A thread that sleeps in the kernel is not touched: the kernel tells its registers (proc(5), /proc/PID/task/TID/syscall), and that it
// has not left its processor again shows that it slept all the time. Any other thread is stopped (PTRACE_INTERRUPT) for as long as
// its registers and its stack are read.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <vector>

#include "engine/patch/live_code_addresses.h"
#include "engine/patch/sequence_search.h"
#include "engine/target/target.h"

namespace uprobe::control {

struct ThreadLook {
  std::optional<LiveCodeAddresses> kept;  // nothing: the thread could not be seen through
  std::chrono::nanoseconds stopped{0};    // for how long it was stopped
};

// `maps`: the process's. `agent`: the agent's code; a thread that runs there is not seen through, because it may be about to leave for
// an address that it has in registers. What the calling thread holds by ptrace it lets go at its end at the latest; it must let
// SIGCHLD through.
ThreadLook look_at_thread(target::Target& process, const std::vector<target::Mapping>& maps, const CodeRange& agent,
                          pid_t tid);

// The ids of all threads that the process had at some moment of the call; empty: they come and go too fast to tell.
std::vector<pid_t> all_threads_of(pid_t pid);

}  // namespace uprobe::control
