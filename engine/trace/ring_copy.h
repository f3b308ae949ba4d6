// SPDX-License-Identifier: MIT
// One ring from the reader's side: takes committed records out of shared memory, checks them and queues them.
//
//   shared ring --take(): one copy--> own memory --checked, stamped--> queue --front(), pop()--> merge (reader.h)
//
// The target can write anything into the ring at any time. So the ring's words are loaded once, the bytes are copied
// before they are looked at, and our own position is never read back. What makes no sense costs records, which are
// counted, and nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/shared/session_area.h"
#include "engine/trace/byte_queue.h"
#include "engine/trace/task_names.h"

namespace uprobe::trace {

struct ReaderCounts {
  std::vector<std::uint64_t> recorded;  // handed to the sink, per event id
  std::vector<std::uint64_t> dropped;   // by the event's filter, which the agent could not run
  std::uint64_t damaged = 0;            // records given up because they, or their ring, made no sense
  std::uint64_t missing = 0;            // records that never came although the numbers of later ones say they were made
  std::uint64_t bad_stamps = 0;         // time stamps that cannot be; replaced by the nearest possible ones
  std::uint64_t order_breaks = 0;       // records handed on later than a younger one
  std::uint64_t reclaimed_rings = 0;    // rings taken from threads that died holding them
};

// The words of a ring as a writer left them, each loaded once and in this order: `commit` holds everything published by
// whoever gave the ring back before `owner` was loaded.
struct RingView {
  bool writing = false;     // somebody is, or was, in the middle of a record
  std::uint32_t owner = 0;  // who; 0 in a CPU ring
  std::uint64_t stamp = 0;
  std::uint64_t commit = 0;
};

class RingCopy {
 public:
  // What a record is checked against. `latest` is a time after `commit` was loaded, `floor` a time that everything not
  // taken yet is known to be younger than; both in ticks. `queue_limit` is at least kMaxRecord.
  struct Rules {
    std::span<const std::uint32_t> fixed_bytes;  // per event id: the least that a payload has
    std::uint64_t floor = 0;
    std::uint64_t latest = 0;
    std::uint64_t slack = 0;
    std::size_t queue_limit = 0;
  };

  // `data` are 2 * ring_bytes, the second half showing the first again. Starts where the ring's reader line says.
  RingCopy(shared::Ring& ring, const std::uint8_t* data, std::uint64_t ring_bytes, bool of_cpu = false);

  RingView look() const;
  // Takes what is committed, as far as the queue has room. True if nothing of it is left in the ring.
  bool take(std::uint64_t commit, const Rules& rules, TaskNames& names, ReaderCounts& counts);
  // Frees the ring if `owner` still holds it.
  bool reclaim(std::uint32_t owner);

  bool empty() const { return queue_.empty(); }
  std::uint64_t front_time() const { return front().tsc; }
  shared::RecordHead front() const;  // `tsc` is a possible time, and not before that of the record before
  // Of the record that `head` is the front of.
  std::span<std::uint8_t> payload_behind(const shared::RecordHead& head);
  std::span<const std::uint8_t> stack_behind(const shared::RecordHead& head);  // empty: it has none
  void pop(const shared::RecordHead& head) { queue_.pop(head.length); }

  std::uint64_t last_time() const { return last_time_; }  // of the youngest record taken
  // The part of the ring that was filled when it was last looked at: 0..1.
  double fill() const { return fill_; }

 private:
  struct Sifted {
    std::uint64_t taken = 0;  // bytes of the copy that are whole records
    std::uint64_t kept = 0;   // bytes of them that go into the queue
    bool broken = false;      // after them comes something that is no record
  };
  Sifted take_piece(std::uint64_t size, bool whole, const Rules& rules, TaskNames& names, ReaderCounts& counts);
  Sifted sift(std::uint8_t* bytes, std::uint64_t size, bool whole, const Rules& rules, TaskNames& names,
              ReaderCounts& counts);
  void check_number(std::uint32_t number, ReaderCounts& counts);
  std::uint64_t possible_time(const shared::RecordHead& head, const Rules& rules, ReaderCounts& counts);
  void resynchronise(std::uint64_t commit, ReaderCounts& counts);
  void publish_tail();

  shared::Ring* ring_;
  const std::uint8_t* data_;
  bool of_cpu_;
  std::uint64_t ring_bytes_;
  std::uint32_t tail_ = 0;         // in units of 8 bytes, modulo 2^32
  std::uint32_t next_number_ = 0;  // that the record at `tail_` should have
  std::uint64_t last_time_ = 0;
  double fill_ = 0;
  ByteQueue queue_;
};

}  // namespace uprobe::trace
