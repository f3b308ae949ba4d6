// SPDX-License-Identifier: MIT
// The recording of a session: the memory that it shares with its programs, the reader of its rings, and what makes text of
// records: the clock, the names of tasks, the names of code addresses.
//
// It begins empty. make_area() and make_reader() fill it before a process has the session, and forget() empties it again after
// an attempt that failed. It is "on" from the moment when the points of the first process are armed until the tool takes
// the session out of its processes.
//
// Threads: learn() to read_all() belong to the thread that reads (reader_thread.h), and before run() to the one that begins the
// session. Any thread may call is_on() and let_learn(), and use the area as trace/area.h allows. The counts, now_ns() and
// know_events() are used in EventTable::alone().
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/process/task_number.h"
#include "engine/session/event_table.h"
#include "engine/session/recipient.h"
#include "engine/summary/call_sums.h"
#include "engine/summary/summed_processes.h"
#include "engine/symbolize/code_maps.h"
#include "engine/symbolize/symbols.h"
#include "engine/trace/area.h"
#include "engine/trace/clock.h"
#include "engine/trace/reader.h"
#include "engine/trace/task_names.h"

namespace uprobe {

// Characters of a string: those that the agent records (filters and histograms see the usual part of a string where less is
// shown; 0: the kernel's limits), and those that are shown.
std::uint32_t recorded_characters(const SessionOptions& options);
std::uint32_t shown_characters(const SessionOptions& options);
// Code::limit where a record with such a string does not fit into a ring.
Status check_strings(const SessionOptions& options);

class Recording {
 public:
  // Both must outlive it. It measures the clock from now on.
  Recording(const SessionOptions& options, EventTable& table) : options_(options), table_(table) {}
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // `mode`: of shared::AreaHeader.
  // `pid`: a process of the session, whose limits decide about rings for which there is no size.
  Status make_area(std::uint32_t mode, pid_t pid);
  Status make_reader();
  void forget();

  bool has_area() const { return area_.has_value(); }
  trace::Area& area() { return *area_; }
  const trace::Area& area() const { return *area_; }
  // The inode of the area's file, by which processes know the session.
  Result<ino_t> inode() const;
  // Null: no event shows names of code addresses.
  control::CodeMaps* code_maps() { return code_maps_.get(); }
  SessionSymbols* symbols() { return symbols_.get(); }
  trace::TaskNames& names() { return names_; }
  OwnRecords& own() { return own_; }

  bool is_on() const { return is_on_; }
  void begin();
  // Returns whether it was on. The programs still record until stop().
  bool end() { return is_on_.exchange(false); }
  void stop();
  // Agents send no more requests.
  void end_requests();

  // There may be further events. For a recipient of records that have been queued.
  void let_learn(Recipient& recipient) const {
    table_.alone([&] { recipient.learn_events(); });
  }

  void learn(const std::vector<control::SeenTask>& tasks);
  void learn_last_names();
  // Hands on what is committed and whose order is certain.
  void poll();
  // Hands on at least everything that is committed now.
  void poll_settled();
  // Hands on everything. For the end, when no process records any more.
  void read_all();

  std::chrono::microseconds next_poll() const { return reader_->next_poll(); }
  std::uint64_t tick_rate() const { return clock_->rate(); }  // as first measured
  // See Reader.
  bool has_handed_on(std::uint64_t ns) { return reader_->has_handed_on(ns); }
  // Of CLOCK_MONOTONIC: no record is older. Not known before begin().
  std::uint64_t began_ns() const { return began_ns_; }
  // The time of a hit that happens now.
  std::uint64_t now_ns() { return clock_->to_ns(trace::Clock::now()); }
  // The area has further events. Call before any of them is recorded.
  void know_events() { reader_->know_events(); }
  const trace::ReaderCounts& read_counts() const { return reader_->counts(); }
  // Counts since the beginning of the session; counts since the event belongs to its present owner.
  // Of an event that sums up its calls: all, and those since its counts were reset.
  summary::CallSums sums_of(std::size_t event) const;
  summary::CallSums sums_since_reset(std::size_t event) const;
  void reset_sums(std::size_t event) { sums_before_[event] = sums_of(event); }
  // The processes that have rows of their own. In EventTable::alone().
  const summary::SummedProcesses& summed_processes() const { return summed_; }
  EventCounts all_counts_of(std::size_t event) const;
  EventCounts counts_of(std::size_t event) const;

 private:
  void make_symbols();
  void hand_on(const trace::EventRecord& record);
  // Null: each record goes through hand_on().
  trace::RunSink run_sink();
  // The names of tasks that occur only in histograms, read while the tasks live.
  void learn_counted_tasks();
  std::uint32_t entries_of(std::size_t histogram) const;
  void learn_tasks_of(std::size_t histogram);
  bool is_older_pending(std::uint32_t ring, std::uint64_t now) const;
  void await_writers();

  const SessionOptions& options_;
  EventTable& table_;
  const trace::ClockSample clock_begin_ = trace::Clock::sample();
  std::atomic<bool> is_on_{false};
  std::uint64_t began_ns_ = 0;
  std::optional<trace::Area> area_;
  std::unique_ptr<control::CodeMaps> code_maps_;
  std::unique_ptr<SessionSymbols> symbols_;
  std::optional<trace::Clock> clock_;
  trace::TaskNames names_;
  std::optional<trace::Reader> reader_;
  std::vector<std::uint32_t>
      counted_tasks_;  // per histogram: its number of entries when its tasks' names were last read
  summary::SummedProcesses summed_;
  std::map<std::size_t, summary::CallSums> sums_before_;  // by event, when its counts were reset
  OwnRecords own_;
};

}  // namespace uprobe
