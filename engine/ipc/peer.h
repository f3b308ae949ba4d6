// SPDX-License-Identifier: MIT
// Which process is at the other end of a local socket, and whether that process may join a session.
//
// The rule is the kernel's ptrace access check, in both directions: same PID and user namespace, same user, and at least the
// other side's capabilities. The user id alone proves little: a process with uid 0 may have no capability at all, and in a user
// namespace any user can be uid 0. The tools do not reimplement the kernel's check, they let the kernel make it. Each tool has
// a *pass*: a random text that is the name of a memory file which the tool holds open. The names of open files are in
// /proc/PID/fd, which the kernel shows only to a process that passes the check (read mode, as for /proc/PID/environ). A process
// that knows another one's pass may therefore inspect it.
//
//   owner tool                                   client tool
//   holds "uprobe-pass:O"                        holds "uprobe-pass:C"
//   reads C in /proc/CLIENT/fd
//                        -- greeting: C -->      compares: the owner tool may inspect this process
//                        <-- hello: O, ... --    reads O in /proc/OWNER/fd
//   compares: the client tool may inspect this process
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe {

// The process that has connected, or that listens, as the kernel reports it.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  Fd handle;  // a pidfd

  // False: the process has ended, and its id may belong to another process.
  bool is_alive() const;
};

// A connection whose other end is known.
struct Connection {
  Fd socket;
  Peer peer;
};

// Code::refused where the kernel does not name the process.
Result<Peer> peer_of(int socket);

// Whether the peer has the PID namespace of this process and, as far as the kernel shows it, the same user namespace.
// Code::refused with a reason that names no process.
Status check_namespaces(const Peer& peer);

// Makes this process's pass. Call once, before another process can ask for it.
Status make_own_pass();
// Whether the text is this process's pass.
bool is_own_pass(std::string_view text);
// The pass of another process; empty: it has none, or the kernel does not show it to this process.
std::string pass_of(const Peer& peer);
// Whether this process may see what descriptors a peer has.
bool can_be_looked_at(const Peer& peer);

// Whether a process is stopped (by SIGSTOP and the like, or by a debugger), so that it cannot answer.
bool is_stopped(pid_t pid);

// "root (uid 0)", "uid 12345"
std::string user_text(uid_t uid);

// The user id of a process; nothing: there is no such process.
std::optional<uid_t> user_of(pid_t pid);

}  // namespace uprobe
