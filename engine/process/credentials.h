// SPDX-License-Identifier: MIT
// The rights of a process, as the kernel reports them.
//
// Two processes are in one *trust domain* when neither can do anything that the other cannot: their uids, gids, supplementary
// groups, permitted capabilities, bounding set and user namespace are equal.
//
// - Groups count: a record may hold what the recording process read from a file of its group.
// - Uids, gids and groups do not count for a process whose permitted set has CAP_SETUID and CAP_SETGID, because it can take any
//   of them. So a server of root's that takes a user's effective uid for a moment stays in its domain.
// - The permitted set counts and the effective set does not: a process can raise the effective set to the permitted one at any
//   time.
// - The bounding set counts: a process of uid 0 gets all of it by its next execve, even if it has dropped capabilities. The
//   inheritable and ambient sets lie within these two.
// - no_new_privs and seccomp filters do not count, nor do they in the kernel's own check of which process may trace which.
//
// The credentials are those of the first thread that has not ended. A thread that has changed only its own shares all memory with
// the other threads, so it is not a domain of its own.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/target/target.h"

namespace uprobe::control {

struct Credentials {
  std::array<std::uint32_t, 4> uids{}, gids{};  // real, effective, saved, of the file system
  std::vector<std::uint32_t> groups;            // sorted
  std::uint64_t permitted = 0, bounding = 0;    // capabilities
  std::uint64_t namespace_device = 0, user_namespace = 0;
};

// All of the result is about one process: if the id was given to another process while it was read, that is an Error. For the id of
// another thread than the first one: that thread's.
Result<Credentials> credentials_of(pid_t pid);
// The same of a process that this one traces and has stopped: its id is its own until the tracer has seen its end.
Result<Credentials> credentials_of_stopped(target::Target& target);
// The same for the tool itself.
Result<Credentials> own_credentials();

// From the text of /proc/PID/status. Leaves the namespace 0.
Result<Credentials> parse_credentials(const std::string& status);

bool is_same_domain(const Credentials& a, const Credentials& b);

// Whether they are of the user who has called the tool, in its user namespace.
bool is_own_user(const Credentials& credentials);

// Whether `greater` has every right of `lesser`. False where that is not known, as across user namespaces.
bool is_within(const Credentials& lesser, const Credentials& greater);

// Whether the kernel would let one process trace the other, apart from security modules and the other's dumpable flag
// (kernel/ptrace.c, __ptrace_may_access with real credentials; security/commoncap.c, cap_capable and cap_ptrace_access_check).
// False where that cannot be found out.
bool may_trace(pid_t tracer, pid_t tracee);

// Whether execve has changed more than it does for an ordinary file: the file was set-id or has capabilities.
bool has_gained(const Credentials& before, const Credentials& after);

}  // namespace uprobe::control
