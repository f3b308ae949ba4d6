// SPDX-License-Identifier: MIT
// What a session says of itself: its plan before it begins, its counts and notes when it ends, its histograms.
//
// Threads: summary_of() is called in a live change, or when none can be made any more; all the rest by the session's own user.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/session/event_table.h"
#include "engine/session/recording.h"
#include "engine/session/targets.h"

namespace uprobe {

class Report {
 public:
  // All must outlive it.
  Report(const SessionOptions& options, EventTable& table, Recording& recording, Targets& targets, Messages& messages)
      : options_(options), table_(table), recording_(recording), targets_(targets), messages_(messages) {}
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // Before there is a process. With --tier=jump every probe has to be a jump, or the session is refused.
  Status check_tiers();
  std::vector<PlanReport> plan(const std::vector<int>& pids);

  // Of a client: its probes in the order of its definitions. Of the session itself: also those that were removed. The list of
  // probes must not change during the call.
  Summary summary_of(std::uint32_t owner, const Client* client);
  // The session ended at the user's limit, with so many records of each event: the summary counts no later hits.
  void limit_hits(std::vector<std::uint64_t> taken) { taken_ = std::move(taken); }
  // So many hits were recorded, and could not be written.
  void note_unwritten(std::uint64_t hits) { unwritten_ = hits; }
  // Of a session that has begun in no process.
  Summary empty_summary() const;
  // See Session.
  std::string histograms(bool raw_strings);
  // `by_process`: a row for each process that has called the function.
  std::vector<CallSummary> calls(bool by_process);
  std::uint32_t snapshots() const;  // see Session::snapshots

 private:
  // Why each probe cannot be a jump at all of its places; empty for those that can. Decided by the files alone. Not for
  // --tier=int3.
  std::vector<std::string> reasons_against_jumps();
  PlanReport plan_of(const Probe& probe) const;
  CallSummary calls_of(const std::vector<std::size_t>& probes);
  void add_calls_by_process(const std::vector<std::size_t>& probes, std::vector<CallSummary>& all);
  CallSummary titled(const std::vector<std::size_t>& probes, CallSummary calls) const;
  std::vector<std::size_t> events_of(std::uint32_t owner, const Client* client) const;
  ProbeSummary line_of(std::size_t event, const EventCounts& counts, std::uint64_t lag) const;
  void apply_limit(std::size_t event, ProbeSummary& line) const;
  void add_tier(std::size_t event, Summary& summary) const;
  void add_removed(const std::vector<std::size_t>& events, Summary& summary) const;

  const SessionOptions& options_;
  EventTable& table_;
  Recording& recording_;
  Targets& targets_;
  Messages& messages_;
  std::optional<std::vector<std::uint64_t>> taken_;  // see limit_hits()
  std::uint64_t unwritten_ = 0;
};

}  // namespace uprobe
