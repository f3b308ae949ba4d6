// SPDX-License-Identifier: MIT
// The owner tool's side of peer_protocol.h: it admits clients (only those that pass the checks of peer.h) and serves each one
// in a thread. No client can delay the owner tool's reader, whatever it does or fails to do: its records are queued in memory
// up to a limit, and records beyond it are counted as lost for that client.
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

// A connected client tool.
class Client {
 public:
  Client(Fd socket, Peer peer);
  pid_t pid() const { return peer_.pid; }

  // The thread that reads the rings puts records there, then calls flush().
  RecordQueue records;
  void flush();

  // Set by the session that has admitted it.
  std::uint32_t owner = 0;
  int known_as = 0;
  plan::Tier tier = plan::Tier::automatic;
  std::vector<std::uint16_t> events;  // in the order of its definitions
  bool is_settled = true;             // the reader has handed on all that was recorded before it left

 private:
  friend class PeerServer;

  std::optional<ClientEnd> end() const;

  Fd socket_, wake_;
  const Peer peer_;
  std::string sending_;  // used by its own thread alone; the first `sent_` bytes are sent
  std::size_t sent_ = 0;
  mutable std::mutex lock_;
  std::optional<ClientEnd> end_;  // why no more comes
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// The server's calls into the session, made by the clients' threads.
struct ClientCalls {
  // Adds the client's probes and returns them as parsed. The client's records may come from this moment on.
  std::function<Result<std::vector<std::string>>(const std::shared_ptr<Client>&, const Hello&)> admit;
  // The client has left: removes its probes, after which all of their records are in its queue. Called once for each admitted
  // client that end() has not ended. True: it was the last one and end() will be called; its own end is sent when the target is
  // released.
  std::function<bool(Client&)> dismiss;
  std::function<Summary(const Client&)> summary_of;
  // The last call for an admitted client.
  std::function<void(const Client&)> forget;
};

// The name of a tool's socket in the folder.
std::string client_socket_of(pid_t owner);

class PeerServer {
 public:
  // Listens in the folder of this user's sessions. Code::refused where that folder cannot be used.
  static Result<PeerServer> open();
  PeerServer(PeerServer&&) noexcept;
  PeerServer& operator=(PeerServer&&) = delete;
  ~PeerServer();

  // Starts to admit clients; those that connected earlier have been waiting for this. Call once.
  void serve(ClientCalls calls);
  // Accepts no further connections. A client that is just being admitted is refused by the session.
  void close();
  // Sends every client its queued records, as long as it takes some each second, then its summary. No client is left
  // afterwards.
  void end(ClientEnd end);

 private:
  struct State;
  PeerServer();
  std::unique_ptr<State> state_;
};

}  // namespace uprobe
