// SPDX-License-Identifier: MIT
// The server side of `uprobe-run --control`: a socket in the user's folder, named after the tool's process id and, if the
// session has a name, after that too. The server's own thread reads several requests at a time and answers them one by one, so
// a client that is silent, slow or stopped delays no other client.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/ipc/control_protocol.h"
#include "engine/ipc/socket_folder.h"

namespace uprobe {

class ControlServer {
 public:
  // `pid`: the tool's, as its user knows it. The name of a tool that was killed is taken over. Code::refused: a session of that
  // name is running, or the folder cannot be used.
  static Result<ControlServer> open(const std::string& name, int pid);
  ControlServer(ControlServer&&) noexcept = default;
  ControlServer& operator=(ControlServer&&) = delete;
  // Waits for the request in progress, then removes the socket and its name.
  ~ControlServer();

  // Starts to answer requests; clients that connected earlier have been waiting for this. Call once.
  void serve(std::function<Reply(const std::vector<Command>&)> answer);

 private:
  ControlServer() = default;

  std::optional<SocketFolder> folder_;
  Fd listener_, stop_;
  std::vector<SocketName> names_;
  std::thread thread_;
};

}  // namespace uprobe
