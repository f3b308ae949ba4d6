// SPDX-License-Identifier: MIT
// Who is at the other end of a local socket, and whether that process may join a session.
//
// The rule is the kernel's ptrace access check, in both directions: same user and PID namespace, same user, and at least the other
// side's capabilities. The user id alone says little: a process with uid 0 may have no capability at all, and a user namespace gives
// uid 0 to anybody. No tool repeats the kernel's rules. Each one has a *pass*, a random text that is the name of a memory file which
// it holds open. Names of open files are in /proc/PID/fd, which the kernel shows only to a process that passes the check (read mode,
// as for /proc/PID/environ). Who can say the pass of a process may look into that process.
//
//   host                                         client
//   holds "uprobe-pass:H"                        holds "uprobe-pass:G"
//   reads G in /proc/GUEST/fd
//                        -- greeting: G -->      compares: the host may look into this process
//                        <-- hello: H, ... --    reads H in /proc/HOST/fd
//   compares: the client may look into this process
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe {

// What the kernel says of the process that has connected, or that listens.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  Fd handle;  // a pidfd

  // False: the process has ended, and its number may be another one's.
  bool is_alive() const;
};

// Code::refused where the kernel does not name the process.
Result<Peer> peer_of(int socket);

// Of the same PID namespace, and of the same user namespace as far as the kernel lets us see that. Code::refused with the reason,
// which names no process.
Status check_namespaces(const Peer& peer);

// Makes this process's pass, once: before any other process may ask for it.
Status make_own_pass();
// Whether the text is this process's pass.
bool is_own_pass(std::string_view text);
// The pass of another process; empty: it has none, or the kernel does not show it to us.
std::string pass_of(const Peer& peer);

// Whether a process is stopped (SIGSTOP and the like, or by a debugger): it answers nothing.
bool is_stopped(pid_t pid);

// "nobody (uid 65534)", "uid 12345"
std::string user_text(uid_t uid);

// The user whose process it is; nothing: there is no such process.
std::optional<uid_t> user_of(pid_t pid);

}  // namespace uprobe
