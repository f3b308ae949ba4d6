// SPDX-License-Identifier: MIT
// Which processes are meant by a name or by a file that they map: looked for in /proc, as often as somebody asks.
//
// A look costs what is new: whoever has not matched is looked at again in the next looks and then ever more rarely, since it may
// call execve, take another name or map the file later. Nobody is stopped for it, and nothing needs privileges but the mappings of
// other users' processes. Never found: we ourselves, others of our name, kernel threads, zombies.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe::control {

// Names match as fnmatch has it, files as the inode that is there now, whatever it is called elsewhere.
struct Wanted {
  std::vector<std::string> names, objects;
  bool is_empty() const { return names.empty() && objects.empty(); }
};

struct Candidate {
  pid_t pid = 0;
  std::uint64_t started = 0;  // after boot, in ticks: tells it from another process with its id
  std::string name;
  int offers = 0;  // how many looks it has come with
};

class ProcessFinder {
 public:
  // The first object that cannot be mapped is an Error.
  static Result<ProcessFinder> open(const Wanted& wanted);

  // Those that match and have not been settled: a candidate comes with every look until it is.
  std::vector<Candidate> look();
  void settle(const Candidate& candidate);

  // Whether it is the same process still, and matches still.
  bool is_still(const Candidate& candidate) const;

  // How many processes of the last look do not show us what they map.
  std::size_t closed_ones() const { return closed_; }

 private:
  // As /proc/PID/maps has it between offset and path: " fe:01 4711 ". The descriptor keeps the inode from being somebody else's.
  struct Object {
    Fd file;
    std::string shown;
  };
  struct Known {
    ino_t entry = 0;  // of /proc/PID itself: it changes with the process
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
