// SPDX-License-Identifier: MIT
// The folder with the sockets of a user's sessions: $XDG_RUNTIME_DIR/uprobe-run, or /tmp/uprobe-run-UID where that variable
// names no folder that the user owns (outside the initial user namespace with the namespace's number appended). The folder
// belongs to the user, has mode 0700 and is reached without following a link; anything that another user has put at its name is
// never used. It contains: a tool's process id (--control), a session's name (a link to the former), and ".clients-PID" (for
// client tools).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe {

struct SocketFolder {
  Fd fd;
  std::string path;
};

// The folder for this process's sessions, locked; created if it does not exist. Code::refused, Code::system.
Result<SocketFolder> make_socket_folder();

// The folders where a user's sessions can be, as this process sees them. A folder that exists and cannot be used is an error
// Code::refused; one that does not exist, Code::not_found.
std::vector<Result<SocketFolder>> socket_folders_of(uid_t user);

// "/proc/self/fd/N/NAME", because the path of a socket must be short.
std::string socket_path(const SocketFolder& folder, const std::string& name);

// A socket of that type (SOCK_STREAM, SOCK_SEQPACKET) that listens at the name, with mode 0600. EADDRINUSE: the name exists.
Result<Fd> listen_in(const SocketFolder& folder, const std::string& name, int type);

// Connects; the socket is non-blocking. Code::not_found: no process listens there. EAGAIN: the tool's queue of connections is
// full.
Result<Fd> connect_in(const SocketFolder& folder, const std::string& name, int type);

// Removes a name if it is this user's socket (of streams) or link and no process listens there. Code::refused otherwise.
Status claim_name(const SocketFolder& folder, const std::string& name);

// Removes the names that killed tools have left.
void sweep_folder(const SocketFolder& folder);

// A name in the folder. The destructor removes it if it is still the file that was made.
class SocketName {
 public:
  // `name`: a socket or link that has just been made.
  static Result<SocketName> keep(const SocketFolder& folder, std::string name);
  SocketName(SocketName&& other) noexcept;
  SocketName& operator=(SocketName&&) = delete;
  ~SocketName();

 private:
  SocketName() = default;
  Fd folder_;
  std::string name_;
  ino_t inode_ = 0;
};

// Keeps the user's other tools from changing the folder; false where another process holds the lock for too long.
bool lock_folder(const SocketFolder& folder);
void unlock_folder(const SocketFolder& folder);

// Removes the folder if it is empty and its path still leads to it.
void leave_folder(const SocketFolder& folder);

}  // namespace uprobe
