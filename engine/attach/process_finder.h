// SPDX-License-Identifier: MIT
// Finds processes by name, or by a file that they map, in /proc, at each call of look().
//
// The cost of a look depends on what is new: a process that does not match is checked again in the next looks and then ever
// more rarely, since it may call execve, change its name or map the file later. No process is stopped, and only the mappings of
// other users' processes need privileges. Never found: the tool itself, other processes of its name, kernel threads, zombies.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe::control {

// Names match by fnmatch; files by their inode at the beginning, so that a process may know them by another path.
struct Wanted {
  std::vector<std::string> names, objects;
  bool is_empty() const { return names.empty() && objects.empty(); }
};

struct Candidate {
  pid_t pid = 0;
  std::uint64_t started = 0;  // ticks after boot: distinguishes processes with the same id
  std::string name;
  int offers = 0;  // in how many looks it was returned
};

class ProcessFinder {
 public:
  // Fails with an Error for the first object that cannot be mapped.
  static Result<ProcessFinder> open(const Wanted& wanted);

  // The processes that match and are not settled: each look returns a candidate again until it is settled.
  std::vector<Candidate> look();
  void settle(const Candidate& candidate);

  // Whether it is still the same process, and still matches.
  bool is_still(const Candidate& candidate) const;

  // The number of processes in the last look whose mappings this user may not see.
  std::size_t closed_ones() const { return closed_; }

 private:
  // As /proc/PID/maps shows it between offset and path: " fe:01 4711 ". The open file keeps its inode from being reused.
  struct Object {
    Fd file;
    std::string shown;
  };
  struct Known {
    ino_t entry = 0;  // of /proc/PID itself: another process has another one
    std::uint64_t round = 0, next = 0;
    std::uint32_t looks = 0;
    int offers = 0;
    bool is_settled = false, is_closed = false;
  };

  void put_off(Known& known) const;
  bool matches(pid_t pid, const std::string& name, bool& is_closed) const;
  void look_at(pid_t pid, Known& known, std::vector<Candidate>& found);
  static Result<Object> show(const std::string& path);

  std::vector<std::string> names_;
  std::vector<Object> objects_;
  std::map<pid_t, Known> known_;
  std::uint64_t round_ = 0;
  std::size_t closed_ = 0;
};

}  // namespace uprobe::control
