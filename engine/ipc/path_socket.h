// SPDX-License-Identifier: MIT
// A socket at a path that the user has named.
#pragma once

#include <string>

#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/ipc/socket_folder.h"

namespace uprobe {

struct PathSocket {
  Fd listener;      // non-blocking
  SocketName name;  // removes it, if it is still this socket's
};

// Makes the socket, of that type (SOCK_STREAM, SOCK_SEQPACKET), with mode 0600. `path` is absolute; no link in it is followed, its
// folder is the user's or root's, and no other user can change it. What exists at the path stays, unless it is a socket of this user's
// at which no process listens: a killed tool has left it. Code::refused, Code::usage, Code::system.
Result<PathSocket> make_path_socket(const std::string& path, int type);

}  // namespace uprobe
