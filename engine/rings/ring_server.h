// SPDX-License-Identifier: MIT
// The server side of --export-rings: hands the memory of the rings, for reading, to the programs that connect and may have it
// (foreign_reader.h). A thread of its own talks to them, so that the session's reader waits for none of them.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "engine/ipc/path_socket.h"
#include "engine/rings/foreign_reader.h"

namespace uprobe::rings {

// More have to wait until one of these leaves.
inline constexpr std::size_t kMostReaders = 32;

class RingServer {
 public:
  // Makes the socket (make_path_socket). Programs that connect wait until serve().
  static Result<RingServer> open(const std::string& path);
  RingServer(RingServer&&) noexcept = default;
  RingServer& operator=(RingServer&&) = delete;
  // Tells the readers of the end, which takes a moment at most, and removes the socket.
  ~RingServer();

  // `area` must outlive the server. Call once. May throw std::system_error if no thread can be made.
  void serve(const trace::Area& area, std::uint64_t tick_rate, EventSource events);
  // The session's reader has looked at the rings. Never waits.
  void tell_turn();

 private:
  // What both threads use; it stays in its place.
  struct Shared {
    Fd bell;                        // an eventfd of the tool alone
    std::atomic<bool> has_waiting;  // readers: only then does a turn ring the bell
    std::atomic<bool> is_ending;
  };
  explicit RingServer(PathSocket socket) : socket_(std::move(socket)) {}
  static void loop(int listener, Shared& shared, const Exported& what);

  PathSocket socket_;
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
  std::thread thread_;
};

}  // namespace uprobe::rings
