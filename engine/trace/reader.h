// SPDX-License-Identifier: MIT
// Reads the records of a session out of its rings and hands them on, one by one, in the order of time.
//
// poll() copies everything that is committed into own memory at once (the target loses events while a ring is full),
// then hands on what nobody can overtake any more: all records older than the least time that a writer may still
// publish with (session_area.h). Handing on may be slow; the rings are emptied again every few thousand records
// meanwhile. Records that have to wait are kept up to a limit; beyond it, or when a thread sits on a ring for a tenth of a second
// (stopped in the middle of a hit), they are handed on all the same, and one that then comes too late is counted in
// order_breaks. The rings of all live parts of the area are merged, those of parts that come later as well.
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
#include "engine/trace/ring_copy.h"
#include "engine/trace/task_names.h"
#include "engine/trace/thread_alive.h"

namespace uprobe::trace {

using Sink = std::function<void(const EventRecord&)>;

struct ReaderOptions {
  std::size_t pending_bytes = std::size_t{64} << 20;   // what may wait in memory, all rings together
  std::chrono::nanoseconds slack{2'000};               // by how much stamps of different CPUs may be apart
  std::chrono::nanoseconds reclaim_after{20'000'000};  // a claim this old is looked into: does its thread live?
  // A claim this old is not waited for any more, nor does a ring hold the others up for longer by one claim after the other.
  std::chrono::nanoseconds stall_after{100'000'000};
  // Nor is a section of a CPU ring: one that was interrupted is seen until the next, and one that is not takes microseconds,
  // unless the CPU itself is taken away.
  std::chrono::nanoseconds section_stall_after{5'000'000};
  std::function<bool(std::uint32_t tid)> thread_is_alive = trace::thread_is_alive;
  std::function<std::uint64_t()> now = Clock::now;  // time stamp counter
};

class Reader {
 public:
  // All three must outlive the reader. Goes on where the last reader of the area stopped.
  Reader(Area& area, Clock& clock, TaskNames& names, ReaderOptions options = {});

  // The area has further events; comes before anything of theirs is recorded.
  void know_events();
  // Hands on what is certain, some ten thousand records at most.
  void poll(const Sink& sink);
  // Hands on everything that was committed when it was called. For the end, when nobody records any more.
  void finish(const Sink& sink);
  // How long to wait before the next poll: 1..8 ms by how full the rings were, up to 50 ms when they have been empty for about
  // a second, 0 if poll() had more to hand on.
  std::chrono::microseconds next_poll() const { return wait_; }

  const ReaderCounts& counts() const { return counts_; }

 private:
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

  // A ring and what is known of its writers.
  struct Source {
    RingCopy copy;
    bool of_cpu = false;
    // Everything that is published later is stamped later than this (but for the slack).
    std::uint64_t floor = 0;
    RingView claim = {};           // as last seen, while somebody writes
    std::uint64_t claimed_at = 0;  // when that claim was first seen
    std::uint64_t next_check = 0;  // when to look at the owner again
    bool emptied = true;           // nothing committed was left in the ring
  };
  // Whose record, and when it was made.
  struct Maker {
    shared::TaskNumber task;
    std::uint64_t ns;
  };
  // A ring in the merge, by the time of its first waiting record.
  struct Next {
    std::uint64_t time;
    std::uint32_t source;
    // Turned round: the heap functions keep the greatest on top.
    bool operator<(const Next& other) const { return time != other.time ? time > other.time : source > other.source; }
  };

  void know_parts();
  void collect();
  void collect_from(Source& source, std::uint64_t now);
  void follow_claim(Source& source, const RingView& view, std::uint64_t now);
  std::uint64_t watermark() const;
  std::uint64_t taken_limit() const;
  bool all_emptied() const;
  std::size_t merge(std::uint64_t limit, std::size_t most, const Sink& sink);
  void hand_on(RingCopy& ring, const Sink& sink);
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
  std::uint64_t handed_on_ = 0;  // the youngest time handed on
  ReaderCounts counts_;
  std::chrono::microseconds wait_{1000};
};

}  // namespace uprobe::trace
