// SPDX-License-Identifier: MIT
// The host's side of several tools on one target: where clients come in (only those that pass the checks of peer.h), and a thread for
// each of them. Nothing that a client does or
// leaves undone keeps the host's reader waiting: its records go to memory, of which there is a limit, and what is beyond it is
// counted and lost for that client.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/ipc/peer.h"
#include "engine/ipc/peer_protocol.h"
#include "engine/ipc/record_queue.h"
#include "engine/ipc/socket_folder.h"

namespace uprobe {

// One that has come in.
class Client {
 public:
  Client(Fd socket, Peer peer);
  pid_t pid() const { return peer_.pid; }

  // The reader's thread puts records there, and says so.
  RecordQueue records;
  void flush();

  // Of the session that has let it in.
  std::uint32_t owner = 0;
  int known_as = 0;
  plan::Tier tier = plan::Tier::automatic;
  std::vector<std::uint16_t> events;  // in the order of its definitions

 private:
  friend class PeerServer;

  std::optional<ClientEnd> end() const;

  Fd socket_, wake_;
  const Peer peer_;
  std::string sending_;  // of its own thread, as far as `sent_` gone
  std::size_t sent_ = 0;
  mutable std::mutex lock_;
  std::optional<ClientEnd> end_;  // no more comes
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// What the server asks of the session, from the clients' threads.
struct ClientCalls {
  // Its probes as they are now; the client's records may come from the first moment on.
  std::function<Result<std::vector<std::string>>(const std::shared_ptr<Client>&, const Hello&)> admit;
  // It has left: its probes are removed, and what they have recorded has been taken. Once for each that was admitted and that
  // end() has not ended. Whether it was the last, and end() comes: it hears of its own end when the target is let go.
  std::function<bool(Client&)> dismiss;
  std::function<Summary(const Client&)> summary_of;
  // The last call for one that was admitted.
  std::function<void(const Client&)> forget;
};

// The name of a tool's socket in the folder.
std::string client_socket_of(pid_t host);

class PeerServer {
 public:
  // In the folder of this user's sessions. Code::refused where that cannot be used.
  static Result<PeerServer> open();
  PeerServer(PeerServer&&) noexcept;
  PeerServer& operator=(PeerServer&&) = delete;
  ~PeerServer();

  // From now on clients are let in: whoever has knocked before has waited. Once.
  void serve(ClientCalls calls);
  // Nobody else comes in. Whoever is about to is refused by the session.
  void close();
  // Every client gets what waits for it, as long as it takes some of it each second, and its summary; then there are none.
  void end(ClientEnd end);

 private:
  struct State;
  PeerServer();
  std::unique_ptr<State> state_;
};

}  // namespace uprobe
