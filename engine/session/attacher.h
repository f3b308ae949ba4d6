// SPDX-License-Identifier: MIT
// Attaches to running processes: to those that the user gave by id, alone or as a client of the tool that traces them, and then
// to those that the user meant by name or by file (late_attacher.h).
//
// Threads: the one that begins the session; end_search() belongs to the one that ends it.
#pragma once

#include <optional>
#include <set>

#include "engine/attach/process_finder.h"
#include "engine/session/client_tool.h"
#include "engine/session/end_watch.h"
#include "engine/session/late_attacher.h"
#include "engine/session/sockets.h"
#include "engine/session/targets.h"

namespace uprobe {

class Attacher {
 public:
  // All must outlive it.
  struct Parts {
    EventTable& table;
    Recording& recording;
    Targets& targets;
    EndWatch& ends;
    Sockets& sockets;
    ClientTool& client_tool;
    Messages& messages;
  };
  Attacher(const SessionOptions& options, const Parts& parts)
      : options_(options),
        table_(parts.table),
        recording_(parts.recording),
        targets_(parts.targets),
        ends_(parts.ends),
        sockets_(parts.sockets),
        client_tool_(parts.client_tool),
        messages_(parts.messages) {}
  Attacher(const Attacher&) = delete;
  Attacher& operator=(const Attacher&) = delete;

  // Whether it finds processes by name or by file.
  bool searches() const { return !whom_.names.empty() || !whom_.objects.empty(); }

  // In this order. After attach_or_join() this session has begun, or is the client of another one.
  Status prepare(const Selection& whom);
  Status attach_or_join(const GivenUp& given_up);
  Status find_others(const GivenUp& given_up);

  void end_search();

 private:
  struct Taken;

  Status look_ahead();
  Status may_change(pid_t pid) const;
  Status take(pid_t pid, const GivenUp& given_up, Taken& taken);
  Status take_all(const GivenUp& given_up, Taken& taken);
  Status attach_all(const GivenUp& given_up);
  Status attach_first(const GivenUp& given_up);
  void forget_attempt();
  bool goes_on_without_ended();
  Status join_owner(const Error& occupied, const GivenUp& given_up);
  Status search(const GivenUp& given_up);

  const SessionOptions& options_;
  EventTable& table_;
  Recording& recording_;
  Targets& targets_;
  EndWatch& ends_;
  Sockets& sockets_;
  ClientTool& client_tool_;
  Messages& messages_;
  Selection whom_;
  std::set<pid_t> there_;  // of those by id: was there when the session was prepared
  std::optional<control::ProcessFinder> finder_;
  std::optional<LateAttacher> late_attacher_;
};

}  // namespace uprobe
