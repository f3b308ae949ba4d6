// SPDX-License-Identifier: MIT
// A flight recording: the newest hits in memory, and a recording of them when it is asked for.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/program/layout.h"
#include "engine/trace/event_record.h"

namespace uprobe::recording {

// All functions may be called from several threads.
class Flight {
 public:
  // Keeps some `limit` bytes of hits, and a chunk more.
  explicit Flight(std::size_t limit) : limit_(limit) {}

  // Copies it. The oldest hits that are beyond the limit are dropped, a chunk of them at a time.
  void take(const trace::EventRecord& record, const program::EventLayout& layout, std::string_view comm);
  // A whole recording (recorder.h), for `--replay`: what is kept, and the counts of all events. Names of code addresses are not in
  // it. What is kept stays.
  std::string whole(std::span<const format::Total> totals) const;
  std::uint64_t kept() const;  // hits
  std::uint64_t dropped() const;

 private:
  // A hit in a chunk: followed by payload, stack and comm.
  struct Head {
    std::uint64_t ns;
    std::uint32_t tid, pid, payload_bytes, stack_bytes;
    std::uint16_t cpu, event, flags, comm_bytes;
  };
  struct Chunk {
    std::string bytes;
    std::uint64_t hits = 0;
  };

  std::uint16_t number_of(std::uint16_t type, const program::EventLayout& layout);
  void drop_oldest();

  const std::size_t limit_;
  mutable std::mutex lock_;  // guards all that follows
  std::vector<program::EventLayout> events_;
  std::vector<std::uint16_t> numbers_;  // by type: index of events_ + 1; 0: not seen yet
  std::deque<Chunk> chunks_;            // the oldest first
  std::size_t bytes_ = 0;               // of all chunks
  std::uint64_t kept_ = 0, dropped_ = 0;
};

}  // namespace uprobe::recording
