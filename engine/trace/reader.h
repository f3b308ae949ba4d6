// SPDX-License-Identifier: MIT
// Reads the records of a session from its rings and hands them on, one by one, in order of time.
//
// Poll() first copies everything that is committed into its own memory, because the target loses events while a ring is full.
// Then it hands on the records that no later record can precede: all that are older than the least time with which a writer may
// still publish (session_area.h). The sink may be slow, so the rings are emptied again every few thousand records. Records that
// have to wait are kept up to a limit. Beyond it, or when a thread holds a ring for a tenth of a second (stopped in the middle
// of a hit), they are handed on nevertheless, and a record that then comes too late is counted in order_breaks. The reader
// merges the rings of all live parts, including parts that are added later.
//
// A sink of runs gets the records of each ring by itself and in order of time, several at once, as long as no waiting record asks
// for more; when one does, all go through the merge. Names are right for both, because the watermark holds for both.
//
// Nothing in the shared memory is trusted; see ring_copy.h. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "engine/trace/area.h"
#include "engine/trace/clock.h"
#include "engine/trace/event_record.h"
#include "engine/trace/record_run.h"
#include "engine/trace/ring_copy.h"
#include "engine/trace/task_names.h"
#include "engine/trace/thread_alive.h"

namespace uprobe::trace {

using Sink = std::function<void(const EventRecord&)>;

struct ReaderOptions {
  std::size_t pending_bytes = std::size_t{64} << 20;  // limit of waiting records, all rings together
  std::chrono::nanoseconds slack{2'000};              // the most by which stamps of different CPUs may differ
  std::chrono::nanoseconds reclaim_after{
      20'000'000};  // for a claim this old the reader checks whether its thread lives
  // The reader waits for a claim no longer than this, nor longer for a series of claims of one ring.
  std::chrono::nanoseconds stall_after{100'000'000};
  // The same for a section of a CPU ring: an interrupted section restarts, and an uninterrupted one takes microseconds, unless
  // the hypervisor takes the CPU away.
  std::chrono::nanoseconds section_stall_after{5'000'000};
  std::function<bool(std::uint32_t tid)> thread_is_alive = trace::thread_is_alive;
  std::function<std::uint64_t()> now = Clock::now;  // time stamp counter
};

class Reader {
 public:
  // All three must outlive the reader. It continues where the last reader of the area stopped.
  Reader(Area& area, Clock& clock, TaskNames& names, ReaderOptions options = {});

  // Call when the area has further events, before any of them is recorded.
  void know_events();
  // Hands on records whose order is certain, some ten thousand at most. `runs`: where it may, else `sink` gets all.
  void poll(const Sink& sink, const RunSink& runs = nullptr);
  // Hands on everything that is committed at the time of the call. For the end, when no process records any more.
  void finish(const Sink& sink, const RunSink& runs = nullptr);
  // The time to wait before the next poll: 1 to 8 ms depending on how full the rings were, up to 50 ms when they have been
  // empty for about a second, 0 if poll() had more to hand on.
  std::chrono::microseconds next_poll() const { return wait_; }

  // Whether no record can come that is as old as this time (nanoseconds of CLOCK_MONOTONIC), or older.
  bool has_handed_on(std::uint64_t ns) { return clock_.to_ns(certain_) > ns; }
  // The same for a time of the counter.
  bool has_handed_on_ticks(std::uint64_t ticks) const { return certain_ > ticks; }

  const ReaderCounts& counts() const { return counts_; }

 private:
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  // A ring, and the facts about its writers.
  struct Source {
    RingCopy copy;
    bool of_cpu = false;
    // Everything published later has a later stamp than this (minus the slack).
    std::uint64_t floor = 0;
    RingView claim = {};           // as last seen, while a writer has it
    std::uint64_t claimed_at = 0;  // when that claim was first seen
    std::uint64_t next_check = 0;  // when to look at the owner again
    bool emptied = true;           // nothing committed was left in the ring
  };
  // The task of a record, and the record's time.
  struct Maker {
    shared::TaskNumber task;
    std::uint64_t ns;
  };
  // A ring in the merge, by the time of its first waiting record.
  struct Next {
    std::uint64_t time;
    std::uint32_t source;
    // Reversed: the heap functions keep the greatest on top.
    bool operator<(const Next& other) const { return time != other.time ? time > other.time : source > other.source; }
  };

  void know_parts();
  // `portion`: bytes of a ring, at most.
  void collect(std::size_t portion = kAll);
  void collect_from(Source& source, std::uint64_t now, std::size_t portion);
  void follow_claim(Source& source, const RingView& view, std::uint64_t now);
  std::uint64_t watermark() const;
  std::uint64_t taken_limit() const;
  std::uint64_t first_waiting() const;
  bool all_emptied() const;
  // Return how many records they have handed on: all up to that time, in runs; or `most` of them in order.
  std::size_t hand_on_certain(const Sink& sink, const RunSink& runs);
  std::size_t hand_on(std::uint64_t limit, std::size_t most, const Sink& sink, const RunSink& runs);
  std::size_t hand_on_runs(std::uint64_t limit, const RunSink& runs);
  std::size_t merge(std::uint64_t limit, std::size_t most, const Sink& sink);
  void hand_on_first(RingCopy& ring, const Sink& sink);
  std::size_t hand_on_ring(std::uint32_t ring, std::uint64_t limit, const RunSink& runs);
  std::uint64_t gather(std::span<std::uint8_t> waiting, std::uint64_t limit, RecordRun& run);
  static void show_number(std::span<std::uint8_t> payload, std::uint32_t tid);
  void learn_name(std::span<const std::uint8_t> name, const Maker& maker);
  bool is_wanted(const shared::RecordHead& head, std::span<const std::uint8_t> payload, std::uint16_t type,
                 const Maker& maker);
  void fill_in_comm(std::span<std::uint8_t> payload, std::uint16_t type, const Maker& maker);
  void advise(double fill, bool more);
  double fullest() const;

  Area& area_;
  Clock& clock_;
  TaskNames& names_;
  ReaderOptions options_;
  std::uint64_t slack_, reclaim_after_, stall_after_, section_stall_after_;  // in ticks
  std::size_t queue_limit_ = 0;
  std::vector<std::uint32_t> fixed_bytes_;
  std::vector<Source> sources_;
  std::vector<Next> heap_;
  std::uint64_t handed_on_ = 0;  // the latest time handed on
  std::uint64_t certain_ = 0;    // all up to this time has been handed on
  ReaderCounts counts_;
  std::chrono::microseconds wait_{1000};
};

}  // namespace uprobe::trace
