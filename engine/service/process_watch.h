// SPDX-License-Identifier: MIT
// Watches the processes of a session for a recipient that shows its course: tells of each that comes, calls execve, or is gone.
//
// A process is known by what the mail service has seen of it, or by its first record. A record is the word of a traced process: an
// id that has never been seen to belong to the session is told of, and its process is not opened, read, or waited for beyond
// whether it exists. A start is told with the time of the first record, if that is older than what the mail service has seen: so it
// waits until a record has come or none of that age can come. An end is told when all records of its time have been handed on.
//
// Nothing waits for this. At most `most` processes are known at a time; further ones are not told of. All is called by the thread
// that reads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fd.h"
#include "engine/output/course.h"
#include "engine/process/task_number.h"
#include "engine/service/seen_exec.h"
#include "engine/trace/record_run.h"

namespace uprobe {

class ProcessWatch {
 public:
  static constexpr std::size_t kMost = 4096;

  struct Needs {
    std::function<void(const format::ProcessEvent&)> tell;
    // A pidfd of a process that has the session; none: there is no such process.
    std::function<Fd(pid_t)> open_member;
    // Whether no record can come that is as old as this time.
    std::function<bool(std::uint64_t ns)> has_handed_on;
    pid_t own_child = 0;  // of this process, and not yet reaped; 0: none
    std::size_t most = kMost;
  };
  explicit ProcessWatch(Needs needs);

  // A process that has the session, with the name that it had at that time.
  void add_member(pid_t pid, std::uint64_t ns, std::string_view comm);
  void learn(std::span<const control::SeenTask> tasks, std::span<const control::SeenExec> execs);
  // A record is about to be handed on; likewise a run, whose ring may be ahead of others until the end of the turn.
  void see(std::uint32_t pid, std::uint64_t ns, std::string_view comm);
  void see_run(const trace::RecordRun& run);
  // At the end of a turn. Looks at the processes ten times a second at most.
  void step();
  // The same at once. `is_last`: all records have been handed on.
  void look(bool is_last);
  // Some processes have not been told of.
  bool is_overfull() const { return is_overfull_; }
  std::size_t most() const { return needs_.most; }

 private:
  struct Process {
    Fd handle;  // none: it is not known to have the session, or was gone when it was first seen
    std::string comm;
    std::uint64_t gone = 0;                        // when that was seen; 0: it is there
    std::optional<format::ProcessEvent> start;     // not told yet
    std::vector<format::ProcessEvent> execs = {};  // likewise
  };
  struct First {
    std::uint64_t ns;
    std::string comm;
  };
  using Entry = std::map<std::uint32_t, Process>::iterator;

  // Whether a process that is there, or was at that time, has the id. Tells the end of an earlier one.
  bool knows(std::uint32_t pid, std::uint64_t ns);
  Process* begin(std::uint32_t pid, const First& first, Process process);
  void tell_start(Process& process);
  void tell_start(Process& process, const First& first);
  void tell_starts(bool of_all);
  void begin_unproved(std::uint32_t pid, const First& first);
  void begin_those_of_runs();
  std::uint32_t parent_of(std::uint32_t pid) const;
  void find_gone();
  void tell_ends(bool of_all);
  Entry end(Entry entry);

  const Needs needs_;
  std::map<std::uint32_t, Process> processes_;
  std::map<std::uint32_t, First> of_runs_;  // first seen in this turn
  std::uint32_t latest_ = 0;                // is there, and is the one of the last record
  std::size_t gone_ = 0, untold_ = 0;       // how many of them are
  std::chrono::steady_clock::time_point next_look_{};
  bool is_overfull_ = false;
};

}  // namespace uprobe
