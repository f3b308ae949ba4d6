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

class LiveServer {
 public:
  // `pid`: the tool's, as its user knows it. A name whose tool was killed is taken over. Code::refused: a session of that name is
  // running, or the folder cannot be used.
  static Result<LiveServer> open(const std::string& name, int pid);
  LiveServer(LiveServer&&) noexcept = default;
  LiveServer& operator=(LiveServer&&) = delete;
  // Waits for the request under way; the socket and its name are gone then.
  ~LiveServer();

  // From now on requests are answered: a client that has connected before has waited. Once.
  void serve(std::function<Reply(const std::vector<Order>&)> answer);

 private:
  LiveServer() = default;

  std::optional<DoorFolder> folder_;
  Fd listener_, stop_;
  std::vector<DoorName> names_;
  std::thread thread_;
};

}  // namespace uprobe
