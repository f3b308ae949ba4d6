// SPDX-License-Identifier: MIT
// System calls that a stop cuts short though nothing has happened: how they go on as if no tool had been there
// (`arch/code/resumed_call.h`). The kernel returns from some what has been done so far, and has others begin again with all of
// their time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "arch/abi/thread_registers.h"
#include "arch/code/resumed_call.h"
#include "engine/target/target.h"

namespace uprobe::target {

// Results of interrupted calls that only the kernel ever sees (include/linux/errno.h).
inline constexpr std::int64_t kRestart = -512, kRestartNoIntr = -513, kRestartNoHandler = -514, kRestartBlock = -516;

// Calls that a stop ends with EINTR though nothing has happened, and that may be begun again.
bool may_begin_again(long call);
// Those that may wait for their whole time again, or have to wait although something has been done: their sleep is of interest.
bool loses_time(long call);
// Those of whose time the kernel keeps what is left. It goes on with them by restart_syscall, which a seccomp filter may answer by an
// error or by death: under a filter they begin again, with what is left of the time.
bool is_kept_by_kernel(long call);
// Of the former, one for which the kernel itself has noted what is left of the time.
bool has_kept_time(long call, std::int64_t result);
// Whether something may have to be done for a thread with these registers.
bool may_be_cut(const arch::ThreadRegisters& registers);

struct RestOfCall {
  arch::ThreadRegisters registers;  // of the thread, in the code that makes the call
  arch::ResumedCall call;           // what belongs at its stack pointer
};
// `code`: where kResumeCode stands in the process. `slept`: for how long it has waited in the call until it was stopped, if that is
// known. Nothing: the call has ended by itself, or begins again as it was.
std::optional<RestOfCall> rest_of_call(const ProcessFiles& files, const arch::ThreadRegisters& registers, Addr code,
                                       std::optional<std::chrono::nanoseconds> slept);

}  // namespace uprobe::target
