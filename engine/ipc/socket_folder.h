// SPDX-License-Identifier: MIT
// The folder with the sockets of a user's sessions: $XDG_RUNTIME_DIR/uprobe-run, or /tmp/uprobe-run-UID where that variable names no
// folder of the user's own (in a further user namespace with the namespace's number behind it). It belongs to the user, has mode 0700 and is reached through no link; what another user has put at that
// name is never used. Names in it: a tool's process id (--control), the name of a session (a link to the former), and ".clients-PID"
// (other tools).
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

// Where this process's sessions go, locked; made where it is not there. Code::refused, Code::system.
Result<SocketFolder> make_socket_folder();

// Where the sessions of a user can be, from the view of this process. The errors of those that are there and cannot be used are
// Code::refused; of those that are not there, Code::not_found.
std::vector<Result<SocketFolder>> socket_folders_of(uid_t user);

// "/proc/self/fd/N/NAME": paths of sockets are short.
std::string socket_path(const SocketFolder& folder, const std::string& name);

// A socket that listens at the name, mode 0600.
Result<Fd> listen_in(const SocketFolder& folder, const std::string& name);

// Connects; the socket does not block. Code::not_found: nobody listens there. EAGAIN: the tool has more to answer than it can.
Result<Fd> connect_in(const SocketFolder& folder, const std::string& name);

// Removes a name if it is a socket or a link of this user's (`link`), and no process listens there. Code::refused otherwise.
Status claim_name(const SocketFolder& folder, const std::string& name);

// Removes the names that tools which were killed have left.
void sweep_folder(const SocketFolder& folder);

// A name in the folder that goes with this object, if it is still the one that was made.
class SocketName {
 public:
  // The socket or link that has just been made.
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

// Keeps other tools of the user from changing the folder; false where another process keeps us out for too long.
bool lock_folder(const SocketFolder& folder);
void unlock_folder(const SocketFolder& folder);

// Removes the folder if it is empty, and still the one that is meant.
void leave_folder(const SocketFolder& folder);

}  // namespace uprobe
