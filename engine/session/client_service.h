// SPDX-License-Identifier: MIT
// The clients of a session: other tools whose probes this session has among its own (engine/ipc/peer_protocol.h). Each client
// has its own names, filters and counts; clients with a probe at the same place each get every hit. Clients come and go as live
// changes (event_changes.h), so no other client loses hits by it.
//
// The session's own user can leave while there are clients: the session's own probes are removed, the rest stays, and the
// process of the session goes on for its clients. A launched session lasts as long as its program, an attached one until its
// last client has left.
//
// Threads: the clients' own threads make the calls of calls(), the thread that reads asks close_if_alone() and is_deserted(),
// the one of run() the rest. Its lock comes before those of event_changes.h.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/ipc/peer_server.h"
#include "engine/session/attacher.h"
#include "engine/session/event_changes.h"
#include "engine/session/reader_thread.h"
#include "engine/session/report.h"

namespace uprobe {

class ClientService {
 public:
  // All must outlive it.
  struct Parts {
    EventTable& table;
    Recording& recording;
    Targets& targets;
    const Attacher& attacher;
    EventChanges& changes;
    ReaderThread& reader;
    Report& report;
  };
  ClientService(const SessionOptions& options, const Parts& parts) : options_(options), parts_(parts) {}
  ClientService(const ClientService&) = delete;
  ClientService& operator=(const ClientService&) = delete;

  // What the server of clients needs.
  ClientCalls calls();

  // These two never wait for a client that is being admitted, because that one waits for the reader. True: no further client is
  // admitted, as there is none (close_if_alone), or there is none and the session's own user has left (is_deserted).
  bool close_if_alone();
  bool is_deserted();

  // The session's own user leaves as a client does. print_last: prints all of its records, before its counts are taken.
  void leave_to_clients(const std::function<void()>& print_last);
  // As of that moment.
  const std::optional<Summary>& own_summary() const { return own_summary_; }

 private:
  Status may_be_joined(const Hello& hello) const;
  Result<std::vector<Probe>> build(const Hello& hello);
  Result<std::vector<std::string>> admit(const std::shared_ptr<Client>& client, const Hello& hello);
  Result<std::vector<std::string>> admit_now(const std::shared_ptr<Client>& client, const Hello& hello);
  bool dismiss(Client& client);

  const SessionOptions& options_;
  const Parts parts_;
  std::optional<Summary> own_summary_;
  std::mutex admission_;          // guards the next four
  std::size_t client_count_ = 0;  // admitted and not dismissed
  std::uint32_t last_owner_ = 0;
  bool is_closing_ = false;  // no further client is admitted
  bool is_left_ = false;     // the session's own user has left
};

}  // namespace uprobe
