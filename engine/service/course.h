// SPDX-License-Identifier: MIT
// The course of a session, for a recipient that wants it: its processes (process_watch.h), what they map, and what is lost.
//
// Threads: begin() belongs to the thread of run(), and all the rest to the one that reads, which may be another one by then.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/ipc/course_relay.h"
#include "engine/service/process_watch.h"
#include "engine/symbolize/mapping_log.h"
#include "engine/trace/area.h"
#include "engine/types.h"

namespace uprobe {

class Course {
 public:
  struct FirstProcess {
    pid_t pid;
    std::uint64_t ns;
    std::string comm;
  };
  // What the session does for it. All but `tell`, `watch` and `note` are called from the first turn on.
  struct Needs {
    std::function<void(const CourseRelay::Item&)> tell;
    std::function<void(ProcessWatch*)> watch;  // each record is to be shown to it before it is handed on; null: to none
    std::function<void(std::string)> note;     // for the summary
    std::function<const trace::Area&()> area;
    std::function<std::vector<FirstProcess>()> first;  // with which the session has begun
    std::function<bool(std::uint64_t ns)> has_handed_on;
    std::function<pid_t()> own_child;  // as in ProcessWatch::Needs
    std::function<control::MappingLog*()> mappings;
    std::function<std::optional<std::vector<EventProgress>>()> progress;
  };
  explicit Course(Needs needs) : needs_(std::move(needs)) {}
  Course(const Course&) = delete;
  Course& operator=(const Course&) = delete;

  // From the next turn on it is told, first of the processes with which the session has begun. If it is not wanted, this does
  // nothing, nor do the others.
  void begin(bool is_wanted, bool wants_mappings);
  void learn(std::span<const control::SeenTask> tasks, std::span<const control::SeenExec> execs);
  // At the end of a turn.
  void step();
  // After the last records. `dropped`: so many items did not reach the recipient.
  void end(std::uint64_t dropped);

 private:
  struct Told {
    std::uint64_t lost = 0, missed = 0;
  };

  void begin_if_asked();
  Fd open_member(pid_t pid);
  void tell_mappings();
  void tell_losses();
  void note_missing(std::uint64_t dropped) const;

  const Needs needs_;
  std::atomic<bool> is_wanted_{false}, wants_mappings_{false};
  std::optional<ProcessWatch> processes_;
  control::MappingLog* mappings_ = nullptr;  // null: they are not wanted
  control::BuildIds build_ids_;
  std::vector<Told> told_;  // by event
  std::chrono::steady_clock::time_point next_losses_{};
};

}  // namespace uprobe
