// SPDX-License-Identifier: MIT
// The sockets of a session: one takes the commands of `uprobe-run --control`, one the clients, which are other tools on the same
// processes, and one the programs that read the rings by themselves (--export-rings). Their servers have threads of their own,
// which call what serve() is given.
//
// Threads: all of this belongs to the thread that begins the session and, after that, to the one that ends it. tell_turn() belongs
// to the one that reads.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/ipc/control_server.h"
#include "engine/ipc/peer_server.h"
#include "engine/rings/ring_server.h"
#include "engine/session/targets.h"

namespace uprobe {

class EventChanges;

class Sockets {
 public:
  // All must outlive it.
  Sockets(const SessionOptions& options, const EventTable& table, Recording& recording, Messages& messages)
      : options_(options), table_(table), recording_(recording), messages_(messages) {}
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  Status open();
  // `rows`: the table of calls, as far as there is one; called in a thread of the servers.
  using Rows = std::function<std::vector<CallSummary>()>;
  Status serve(EventChanges& changes, const Rows& rows, ClientCalls calls);
  // None has been served yet.
  void close();
  // Takes no more commands, and no more clients; those that are there stay.
  void stop();
  // Sends the clients what they still have to get. None is left afterwards.
  void end_clients(ClientEnd why);
  void drop_clients() { clients_.reset(); }
  // The rings have been looked at.
  void tell_turn() {
    if (rings_) rings_->tell_turn();
  }
  // Nothing is recorded any more.
  void end_rings() { rings_.reset(); }

 private:
  Status open_usual();
  Status serve_rings();

  const SessionOptions& options_;
  const EventTable& table_;
  Recording& recording_;
  Messages& messages_;
  std::optional<ControlServer> control_;
  std::optional<PeerServer> clients_;
  std::optional<rings::RingServer> rings_;
};

}  // namespace uprobe
