// SPDX-License-Identifier: MIT
// The course of a session, for a recipient that wants it: its processes (process_watch.h), and what it loses.
//
// Threads: begin() belongs to the thread of run(), before it reads; all the rest to the one that reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/session/event_changes.h"
#include "engine/session/process_watch.h"
#include "engine/session/recipient.h"
#include "engine/session/recording.h"
#include "engine/session/targets.h"
#include "engine/types.h"

namespace uprobe {

class Course {
 public:
  // All must outlive it.
  Course(Recording& recording, Targets& targets, const EventChanges& changes, Messages& messages)
      : recording_(recording), targets_(targets), changes_(changes), messages_(messages) {}
  Course(const Course&) = delete;
  Course& operator=(const Course&) = delete;

  // Tells of the processes with which the session has begun. Does nothing, nor do the others, if the recipient wants none of it.
  void begin(const Recipient& recipient);
  void learn(std::span<const control::SeenTask> tasks, std::span<const control::SeenExec> execs);
  // At the end of a turn.
  void step();
  // After the last records.
  void end();

 private:
  struct Told {
    std::uint64_t lost = 0, missed = 0;
  };

  void tell_losses();

  Recording& recording_;
  Targets& targets_;
  const EventChanges& changes_;
  Messages& messages_;
  std::optional<ProcessWatch> processes_;
  std::vector<Told> told_;  // by event
  std::chrono::steady_clock::time_point next_losses_{};
};

}  // namespace uprobe
