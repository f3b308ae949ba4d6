// SPDX-License-Identifier: MIT
// What has become of a thread that this process traces.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>

#include "engine/base/result.h"

namespace uprobe::target {

constexpr int kSyscallStop = SIGTRAP | 0x80;  // with PTRACE_O_TRACESYSGOOD

// ptrace's last argument where it is a number.
template <class T>
void* as_data(T value) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(value));
}

// How it has stopped or ended, as waitpid tells it; 0: nothing (with WNOHANG in `how`), -1: errno. Takes the stop or the end; but the
// end of a program that this process has started is only looked at, and left to the thread that waits for it.
pid_t take_change(pid_t tid, int& status, int how);

// A failed ptrace request of a thread that should stand: process_ended() where it is gone.
Error ptrace_error(const char* what);

// Takes the end of a thread that has ended; the end of a program that this process has started is left alone.
void take_end(pid_t tid);

}  // namespace uprobe::target
