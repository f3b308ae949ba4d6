// SPDX-License-Identifier: MIT
// The socket of --export-rings, at a path that the user has named.
#pragma once

#include <string>

#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/ipc/socket_folder.h"

namespace uprobe::rings {

struct RingSocket {
  Fd listener;      // SOCK_SEQPACKET, non-blocking
  SocketName name;  // removes it, if it is still this socket's
};

// Makes the socket, with mode 0600. `path` is absolute; no link in it is followed, its folder is the user's or root's, and no other
// user can change it. What exists at the path stays. Code::refused, Code::usage, Code::system.
Result<RingSocket> make_ring_socket(const std::string& path);

}  // namespace uprobe::rings
