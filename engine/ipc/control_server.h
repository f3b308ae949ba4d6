// SPDX-License-Identifier: MIT
// The door of a session for `uprobe-run --control`: a socket in the owner's folder, called by the tool's process id and, where it was
// given one, by a name. A thread of its own reads several requests at a time and answers one after the other: a client that is
// silent, slow or stopped keeps no other one waiting.
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
  // `pid`: the tool's, as its user knows it. A name whose tool was killed is taken over. Code::refused: a session of that name is
  // running, or the folder cannot be used.
  static Result<ControlServer> open(const std::string& name, int pid);
  ControlServer(ControlServer&&) noexcept = default;
  ControlServer& operator=(ControlServer&&) = delete;
  // Waits for the request under way; the socket and its name are gone then.
  ~ControlServer();

  // From now on requests are answered: a client that has connected before has waited. Once.
  void serve(std::function<Reply(const std::vector<Command>&)> answer);

 private:
  ControlServer() = default;

  std::optional<SocketFolder> folder_;
  Fd listener_, stop_;
  std::vector<SocketName> names_;
  std::thread thread_;
};

}  // namespace uprobe
