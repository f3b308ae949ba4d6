// SPDX-License-Identifier: MIT
// A session that is the client of another tool's session: the owner tool has the target and sends this one its records.
//
// Threads: the one that begins and runs the session.
#pragma once

#include <sys/types.h>

#include <optional>

#include "engine/ipc/peer_client.h"
#include "engine/session/event_table.h"
#include "engine/session/recipient.h"
#include "engine/session/targets.h"

namespace uprobe {

class ClientTool {
 public:
  // All must outlive it.
  ClientTool(const SessionOptions& options, const EventTable& table, const Targets& targets)
      : options_(options), table_(table), targets_(targets) {}
  ClientTool(const ClientTool&) = delete;
  ClientTool& operator=(const ClientTool&) = delete;

  // For errors see PeerClient::begin.
  Status join(pid_t owner, const Tell& tell, const GivenUp& given_up);
  bool has_joined() const { return connection_.has_value(); }
  // After join(): hands on records until the owner tool ends, or the user wants to leave.
  Result<Ending> run(const RunOptions& options, Recipient& recipient);
  Summary summary() const { return connection_->summary(); }

 private:
  Hello hello() const;
  bool receive_all(const RunOptions& options, Recipient& recipient);
  Result<Ending> ending() const;

  const SessionOptions& options_;
  const EventTable& table_;
  const Targets& targets_;
  std::optional<PeerClient> connection_;
};

}  // namespace uprobe
