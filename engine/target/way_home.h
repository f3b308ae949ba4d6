// SPDX-License-Identifier: MIT
// The way back of a stopped thread that the tool takes out of what it was doing.
#pragma once

#include "arch/abi/thread_registers.h"
#include "arch/code/remote_call.h"
#include "engine/target/target.h"

namespace uprobe::target {

// In a restartable sequence the kernel would send the thread to the abort handler at its next preemption (kernel/rseq.c). Elsewhere it
// would forget the sequence instead: so the thread goes on at the handler.
void leave_sequence(Target& target, pid_t tid, arch::ThreadRegisters& registers);

// What a thread with these registers and this mask of blocked signals goes back to: a system call that the stop has interrupted is begun
// again as by the kernel.
arch::RemoteCallReturn way_home(const arch::ThreadRegisters& registers, std::uint64_t mask);

}  // namespace uprobe::target
