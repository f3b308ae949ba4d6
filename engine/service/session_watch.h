// SPDX-License-Identifier: MIT
// Which processes have a session, and whether each of them still has the credentials of its trust domain: looked for in /proc, as
// often as step() is called. Nothing is stopped for it.
//
// A process that is new has its mappings read once; those of the session are looked at in each step. A step in which the kernel has
// started no process since the last one does not read the list of processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/process/credentials.h"

namespace uprobe::control {

class SessionWatch {
 public:
  // The part of the session that a process maps; nothing: none.
  using FindPart = std::function<std::optional<std::size_t>(pid_t)>;
  // The credentials that this part is for.
  using DomainOf = std::function<Credentials(std::size_t part)>;
  SessionWatch(FindPart find_part, DomainOf domain_of)
      : find_part_(std::move(find_part)), domain_of_(std::move(domain_of)) {}

  // A process that has a part which is not for it. It comes with every step until its part is another one, or it has ended.
  struct Stray {
    pid_t pid;
    std::size_t part;
    Credentials credentials;
  };
  std::vector<Stray> step();
  // The same for one process, new or known.
  std::optional<Stray> look_at(pid_t pid);

  // The process maps something else now, or another program.
  void forget(pid_t pid) {
    known_.erase(pid);
    last_started_.clear();
  }
  std::vector<pid_t> members() const;

 private:
  struct Known {
    ino_t entry = 0;  // of /proc/PID itself: it changes with the process
    std::uint64_t round = 0;
    std::optional<std::size_t> part;
  };
  bool may_have_new_ones();
  void find_new_ones();

  FindPart find_part_;
  DomainOf domain_of_;
  std::map<pid_t, Known> known_;
  std::uint64_t round_ = 0;
  std::string last_started_;
};

}  // namespace uprobe::control
