// SPDX-License-Identifier: MIT
// The two sockets of a session: one takes the commands of `uprobe-run --control`, the other one the clients, which are other
// tools on the same processes. Both servers have threads of their own, which call what serve() is given.
//
// Threads: all of this belongs to the thread that begins the session and, after that, to the one that ends it.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/ipc/control_server.h"
#include "engine/ipc/peer_server.h"
#include "engine/session/targets.h"

namespace uprobe {

class EventChanges;

class Sockets {
 public:
  // Both must outlive it.
  Sockets(const SessionOptions& options, Messages& messages) : options_(options), messages_(messages) {}
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  Status open();
  Status serve(EventChanges& changes, ClientCalls calls);
  // Neither has been served yet.
  void close();
  // Takes no more commands, and no more clients; those that are there stay.
  void stop();
  // Sends the clients what they still have to get. None is left afterwards.
  void end_clients(ClientEnd why);
  void drop_clients() { clients_.reset(); }

 private:
  const SessionOptions& options_;
  Messages& messages_;
  std::optional<ControlServer> control_;
  std::optional<PeerServer> clients_;
};

}  // namespace uprobe
