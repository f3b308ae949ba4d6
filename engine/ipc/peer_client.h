// SPDX-License-Identifier: MIT
// A client's side of several tools on one target (peer_protocol.h): the connection to the tool that has it.
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
  // `given_up` is asked while the host thinks. Code::not_found: it takes no clients. EAGAIN: the host is about to leave, or has done
  // so meanwhile. `probes`: what the host has to answer. `joins_others`: also a host that may not look into this process: one of
  // another user, or with fewer capabilities.
  static Result<PeerClient> begin(pid_t host, const Hello& hello, const std::vector<std::string>& probes,
                                  bool joins_others, const GivenUp& given_up);

  // Hands on what has come, and waits for it no longer than so. False: no more comes.
  bool receive(const std::function<void(const ClientRecord&)>& sink, std::chrono::milliseconds limit);
  void leave();

  pid_t host() const { return host_; }
  // Why no more comes; nothing: nobody has said so.
  std::optional<ClientEnd> end() const { return end_; }
  // As the host has told it in the end, else what came.
  Summary summary() const;

 private:
  PeerClient(Fd socket, pid_t host, std::vector<std::string> probes)
      : socket_(std::move(socket)), host_(host), probes_(std::move(probes)), received_(probes_.size()) {}
  Status hear_greeting(bool joins_others, const GivenUp& given_up);
  Status send(std::string_view bytes, const GivenUp& given_up);
  Status hear_answer(const GivenUp& given_up);
  Result<MessageCutter::Message> next(const GivenUp& given_up);
  bool take(const MessageCutter::Message& message, const std::function<void(const ClientRecord&)>& sink);

  Fd socket_;
  pid_t host_;
  std::vector<std::string> probes_;
  std::vector<std::uint64_t> received_;
  MessageCutter in_;
  std::optional<Summary> summary_;
  std::optional<ClientEnd> end_;
  bool has_left_ = false;
};

}  // namespace uprobe
