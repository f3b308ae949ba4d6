// The door of a session that runs: a socket in the owner's folder, called by the tool's process id and, where it was given one, by a
// name. A thread of its own takes one request after the other.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/live_protocol.h"

namespace uprobe {

class LiveServer {
 public:
  // `pid`: the tool's, as its user knows it. What nobody listens to any more (its tool was killed) is taken over. Code::refused: a session of that name is running.
  static Result<LiveServer> open(const std::string& name, int pid);
  LiveServer(LiveServer&&) noexcept = default;
  LiveServer& operator=(LiveServer&&) = delete;
  // Waits for the request under way; the socket and its name are gone then.
  ~LiveServer();

  // From now on requests are answered: whoever has connected before has waited. Once.
  void serve(std::function<Reply(const std::vector<Order>&)> answer);

 private:
  LiveServer() = default;
  static void loop(int listener, int stop, const std::function<Reply(const std::vector<Order>&)>& answer);

  Fd folder_, listener_, stop_;
  std::vector<std::string> names_;  // in the folder
  std::thread thread_;
};

}  // namespace uprobe
