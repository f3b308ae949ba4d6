// SPDX-License-Identifier: MIT
// The rights of a process, by the kernel's word.
//
// Two processes are in one *trust domain* when neither can do anything that the other cannot: the uids, gids, supplementary groups,
// permitted capabilities, bounding set and user namespace are equal.
//
// - Groups count: a record may hold what the recording process read from a file of its group.
// - Uids, gids and groups do not count for a process whose permitted set has CAP_SETUID and CAP_SETGID: it takes whichever it
//   likes. So a server of root's that takes a user's effective uid for a moment stays where it is.
// - Permitted counts and effective does not: a process raises its effective set to the permitted one whenever it likes.
// - The bounding set counts: a process of uid 0 gets all of it by its next execve, whatever it has dropped. The inheritable and
//   ambient sets lie within what these two allow.
// - no_new_privs and seccomp filters do not count, as they do not in the kernel's own check of who may trace whom.
//
// The credentials are those of the first thread. A thread that has changed its own alone shares all memory with the others, so it
// is no domain of its own.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace uprobe::control {

struct Credentials {
  std::array<std::uint32_t, 4> uids{}, gids{};  // real, effective, saved, of the file system
  std::vector<std::uint32_t> groups;            // sorted
  std::uint64_t permitted = 0, bounding = 0;    // capabilities
  std::uint64_t namespace_device = 0, user_namespace = 0;
};

// All of it is about one process, also where the id is given to another one while it is read: then it is an Error.
Result<Credentials> credentials_of(pid_t pid);
// The same for the tool itself.
Result<Credentials> own_credentials();

// From the text of /proc/PID/status; the namespace is left 0.
Result<Credentials> parse_credentials(const std::string& status);

bool is_same_domain(const Credentials& a, const Credentials& b);

// Whether every right of `lesser` is one of `greater` as well. False where that is not known, as across user namespaces.
bool is_within(const Credentials& lesser, const Credentials& greater);

// Whether the kernel would let one process trace the other, but for what it asks of security modules and of the other's dumpable flag
// (kernel/ptrace.c, __ptrace_may_access with real credentials; security/commoncap.c, cap_capable and cap_ptrace_access_check). False
// where it cannot be found out.
bool may_trace(pid_t tracer, pid_t tracee);

// Whether execve has changed more than it does for an ordinary file: the file was set-id, or has capabilities.
bool has_gained(const Credentials& before, const Credentials& after);

}  // namespace uprobe::control
