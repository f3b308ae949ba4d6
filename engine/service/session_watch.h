// SPDX-License-Identifier: MIT
// Watches which processes have a session, and whether each still has the credentials of its trust domain. Each step() looks in
// /proc and stops nothing.
//
// Step() reads the mappings of a new process once, and checks the session's own processes each time. It reads the list of
// processes only if the kernel has started one since the last step.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/process/credentials.h"
#include "engine/target/process_list.h"

namespace uprobe::control {

class SessionWatch {
 public:
  // The part of the session that a process maps; nothing: it maps none, or, with `is_for_now`, runs in the memory of its parent.
  struct Found {
    std::optional<std::size_t> part = std::nullopt;
    bool is_for_now = false;
  };
  using FindPart = std::function<Found(pid_t)>;
  // The credentials for which a part is.
  using DomainOf = std::function<Credentials(std::size_t part)>;
  // `earlier`: processes that are never in the session.
  SessionWatch(FindPart find_part, DomainOf domain_of, target::EarlierProcesses earlier = {})
      : find_part_(std::move(find_part)), domain_of_(std::move(domain_of)), earlier_(std::move(earlier)) {}

  // A process with a part that is not for its credentials. Each step reports it until it has another part, or has ended.
  struct Stray {
    pid_t pid;
    std::size_t part;
    Credentials credentials;
  };
  std::vector<Stray> step();
  // The same for one process, new or known.
  std::optional<Stray> look_at(pid_t pid);

  // The process has changed its mappings, or runs another program.
  void forget(pid_t pid) {
    known_.erase(pid);
    last_started_.clear();
  }
  std::vector<pid_t> members() const;

 private:
  struct Known {
    ino_t entry = 0;  // of /proc/PID itself: it changes with the process
    std::uint64_t round = 0;
    Found found;
  };
  bool may_have_new_ones();
  void find_new_ones();

  FindPart find_part_;
  DomainOf domain_of_;
  const target::EarlierProcesses earlier_;
  std::map<pid_t, Known> known_;
  std::uint64_t round_ = 0;
  std::string last_started_;
};

}  // namespace uprobe::control
