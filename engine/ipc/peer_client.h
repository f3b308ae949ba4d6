// SPDX-License-Identifier: MIT
// The client side of peer_protocol.h: a connection to the owner tool of a target.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/ipc/peer_protocol.h"

namespace uprobe {

class PeerClient {
 public:
  // Polls `given_up` while it waits for the owner tool. Code::not_found: the owner tool takes no clients. Retry::anew: it is about
  // to leave, or has left. `probes`: the probes that the owner tool has to report in its answer. `joins_others`: join also an
  // owner tool that may not inspect this process, because it belongs to another user or has fewer capabilities.
  static Result<PeerClient> begin(pid_t owner, const Hello& hello, const std::vector<std::string>& probes,
                                  bool joins_others, const GivenUp& given_up);

  // Passes received records to `sink`; waits at most `limit` for the first. False: no more will come.
  bool receive(const std::function<void(const ClientRecord&)>& sink, std::chrono::milliseconds limit);
  void leave();

  pid_t owner() const { return owner_; }
  // Why no more will come; nothing: the owner tool has not said.
  std::optional<ClientEnd> end() const { return end_; }
  // The counts that the owner tool sent at the end, or else the number of received records.
  Summary summary() const;

 private:
  PeerClient(Fd socket, pid_t owner, std::vector<std::string> probes)
      : socket_(std::move(socket)), owner_(owner), probes_(std::move(probes)), received_(probes_.size()) {}
  Status hear_greeting(bool joins_others, const GivenUp& given_up);
  Status send(std::string_view bytes, const GivenUp& given_up);
  Status hear_answer(const GivenUp& given_up);
  Result<MessageCutter::Message> next(const GivenUp& given_up);
  bool take(const MessageCutter::Message& message, const std::function<void(const ClientRecord&)>& sink);

  Fd socket_;
  pid_t owner_;
  std::vector<std::string> probes_;
  std::vector<std::uint64_t> received_;
  MessageCutter in_;
  std::optional<Summary> summary_;
  std::optional<ClientEnd> end_;
  bool has_left_ = false;
};

}  // namespace uprobe
