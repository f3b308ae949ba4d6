// SPDX-License-Identifier: MIT
// The course of a session, for a recipient that wants it: its processes (process_watch.h), what they
// map, and what is lost.
//
// Threads: begin() belongs to the thread of run(), and all the rest to the one that reads, which may be another one by then.
#pragma once

#include <atomic>
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
#include "engine/symbolize/mapping_log.h"
#include "engine/types.h"

namespace uprobe {

class Course {
 public:
  // All must outlive it.
  Course(Recording& recording, Targets& targets, const EventChanges& changes, Messages& messages)
      : recording_(recording), targets_(targets), changes_(changes), messages_(messages) {}
  Course(const Course&) = delete;
  Course& operator=(const Course&) = delete;

  // From the next turn on the recipient is told, first of the processes with which the session has begun. If it wants none of that,
  // this does nothing, nor do the others.
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

  void begin_if_asked();
  void tell_mappings();
  void tell_losses();

  Recording& recording_;
  Targets& targets_;
  const EventChanges& changes_;
  Messages& messages_;
  std::atomic<bool> is_wanted_{false}, wants_mappings_{false};
  std::optional<ProcessWatch> processes_;
  control::MappingLog* mappings_ = nullptr;  // null: they are not wanted
  control::BuildIds build_ids_;
  std::vector<Told> told_;  // by event
  std::chrono::steady_clock::time_point next_losses_{};
};

}  // namespace uprobe
