// SPDX-License-Identifier: MIT
// Keeps each process of a session in its trust domain. A process whose credentials have changed gets the live part of its
// present domain within 100 milliseconds; where that fails its live part is taken away. This is done by a thread of the tool,
// which also copies what triggers switch in one domain to the domains of equal or less privilege.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/service/domains.h"
#include "engine/service/part_mover.h"
#include "engine/service/session_watch.h"
#include "engine/service/switch_carrier.h"
#include "engine/trace/area.h"

namespace uprobe::control {

class DomainGuard {
 public:
  // `area` must outlive it. `first`: the credentials of the session's first processes, which have part 0. `earlier`: processes that
  // are never in the session.
  DomainGuard(trace::Area& area, const Credentials& first, const target::EarlierProcesses& earlier);
  ~DomainGuard() { stop(); }
  void stop();

  // The part for a process that is about to join the session. On an Error the process runs untraced.
  Result<std::size_t> part_for(pid_t pid);
  // The same for one that is stopped, and has these credentials.
  Result<std::size_t> part_for(const Credentials& credentials) { return domains_.part_for(credentials); }
  // A process has joined the session, or runs another program in it.
  void has_come(pid_t pid);
  // A process says that its credentials may have changed. If they have, it has its new part when this returns.
  void look_at(pid_t pid);

  // After stop().
  std::vector<std::string> notes() const;

 private:
  Result<std::size_t> part_of(const Credentials& credentials);
  void loop();
  bool rests(std::chrono::milliseconds pace);
  void look_at_all();
  std::vector<pid_t> find_strays();
  void note(pid_t pid, const std::optional<MoveFailure>& failure);
  std::optional<MoveFailure> move(pid_t pid, std::optional<std::size_t> part);
  void fail(pid_t pid, const Error& error);

  trace::Area& area_;
  Domains domains_;
  SwitchCarrier carrier_;
  mutable std::mutex lock_;  // guards all that follows
  SessionWatch watch_;
  // What was done for a process: its moves, its failed tries since the last move, and when it is tried again.
  struct Trouble {
    int moves = 0, tries = 0;
    std::chrono::steady_clock::duration spent{};  // on its moves
    std::chrono::steady_clock::time_point next{};
  };
  std::map<pid_t, Trouble> troubles_;
  std::set<pid_t> moving_;                // without the lock, so that no other process waits for one that does not stop
  std::condition_variable moved_;         // one of them has been
  std::map<pid_t, std::string> failing_;  // their last move failed
  std::set<std::string> notes_;
  std::mutex stop_lock_;
  std::condition_variable ends_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace uprobe::control
