// SPDX-License-Identifier: MIT
// Threads that this process traces: how one is taken, and what has become of it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>

#include "engine/base/result.h"

namespace uprobe::target {

constexpr int kSyscallStop = SIGTRAP | 0x80;  // with PTRACE_O_TRACESYSGOOD

// ptrace's last argument where it is a number.
template <class T>
void* as_data(T value) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(value));
}

// PTRACE_SEIZE: 0, or errno. ETIMEDOUT: the thread was not to be had in time. A thread of its process is in execve then, of a file that a
// server does not give, say: it holds the lock that the kernel's ptrace_attach() asks for. Waits by a signal of its own, which the
// calling thread need not have open.
int seize(pid_t tid, std::uintptr_t options, std::chrono::milliseconds patience);

// How it has stopped or ended, as waitpid tells it; 0: nothing (with WNOHANG in `how`), -1: errno. Takes the stop or the end; but the
// end of a program that this process has started is only looked at, and left to the thread that waits for it.
pid_t take_change(pid_t tid, int& status, int how);

// A failed ptrace request of a thread that should stand: process_ended() where it is gone.
Error ptrace_error(const char* what);

// Takes the end of a thread that has ended; the end of a program that this process has started is left alone.
void take_end(pid_t tid);

}  // namespace uprobe::target
