// SPDX-License-Identifier: MIT
// What has become of a thread that this process traces, and how one gets back that is led elsewhere. Internal to this folder.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "arch/abi/thread_registers.h"
#include "arch/code/remote_call.h"
#include "engine/base/address.h"
#include "engine/base/result.h"
#include "engine/target/target.h"

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

// Where the code of remote calls is put in a stopped process.
struct RemoteCallPlace {
  Addr at;
  std::vector<std::uint8_t> before;
  bool is_left;  // the code of a tool that was killed is there, or of one that is at work
};

// Code::refused where the process has no vDSO, or none with room for it.
Result<RemoteCallPlace> find_remote_call_place(const ProcessFiles& files);

// In a restartable sequence the kernel would send the thread to the abort handler at its next preemption (kernel/rseq.c). Elsewhere it
// would forget the sequence instead: so the thread goes on at the handler.
void leave_sequence(Target& target, pid_t tid, arch::ThreadRegisters& registers);

// What a thread with these registers and this mask of blocked signals goes back to: a system call that the stop has interrupted is begun
// again as by the kernel.
arch::RemoteCallReturn way_home(const arch::ThreadRegisters& registers, std::uint64_t mask);

class StoppedProcess;
// Writes to the text of a stopped process of which all are made, or none, whatever ends the tool in between.
//
// The kernel lets go of a dead tracer's tracees at once, and they run on whichever writes have been made. So before the first write every
// thread is given a way home that leads through the list of all writes (arch/code/finishing_code.h): the threads that run on make them
// all before any of them executes an instruction of the program's own. One word of the list, which is written last, says that it counts.
// For that time the text is writable; no thread runs in it.
//
//   list and code are mapped; registers of all threads; mprotect; THE WORD; the writes; the word; mprotect; registers; munmap
//
// Code::refused where the process may not have this done: it has a seccomp filter, locked memory or a mapping that is not private, or
// does not allow text to be writable. Nothing is written then.
Status write_all_or_none(StoppedProcess& process, std::span<const MemoryPiece> pieces);

}  // namespace uprobe::target
