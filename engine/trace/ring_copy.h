// SPDX-License-Identifier: MIT
// One ring on the reader's side: takes committed records out of shared memory, checks them and queues them.
//
//   shared ring --take(): one copy--> own memory --checked, stamped--> queue --front(), pop()--> merge (reader.h)
//
// The target can write anything into the ring at any time. So the ring's words are loaded once, the bytes are copied before
// they are inspected, and the reader's own position is never read back. Inconsistent bytes cost records, which are counted, and
// do no other harm.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/shared/session_area.h"
#include "engine/trace/byte_queue.h"
#include "engine/trace/task_names.h"

namespace uprobe::trace {

struct ReaderCounts {
  std::vector<std::uint64_t> recorded;  // handed to the sink, per event id
  std::vector<std::uint64_t> dropped;   // by the event's filter, where the agent could not evaluate it
  std::uint64_t damaged = 0;            // records dropped because they, or their ring, were inconsistent
  std::uint64_t missing = 0;     // records that never came, although the numbers of later ones show that they were made
  std::uint64_t bad_stamps = 0;  // impossible time stamps, replaced by the nearest possible ones
  std::uint64_t order_breaks = 0;     // records handed on after a later one
  std::uint64_t reclaimed_rings = 0;  // rings taken from threads that died holding them
};

// The words of a ring as a writer left them, each loaded once and in this order: `commit` covers everything published by a
// writer that had returned the ring before `owner` was loaded.
struct RingView {
  bool writing = false;     // a writer is in the middle of a record, or died there
  std::uint32_t owner = 0;  // that writer; 0 in a CPU ring
  std::uint64_t stamp = 0;
  std::uint64_t commit = 0;
};

class RingCopy {
 public:
  // The facts against which a record is checked. `latest`: a time after `commit` was loaded. `floor`: all records not yet taken
  // are later. Both in ticks. `queue_limit`, of all that waits, and `portion`, of what is taken at once, are at least kMaxRecord.
  struct Rules {
    std::span<const std::uint32_t> fixed_bytes;  // per event id: the least size of its payload
    std::uint64_t floor = 0;
    std::uint64_t latest = 0;
    std::uint64_t slack = 0;
    std::size_t queue_limit = 0;
    std::size_t portion = std::numeric_limits<std::size_t>::max();
  };

  // `data` has 2 * ring_bytes; the second half maps the first again. Starts at the position in the ring's reader line.
  RingCopy(shared::Ring& ring, const std::uint8_t* data, std::uint64_t ring_bytes, bool of_cpu = false);

  RingView look() const;
  // Takes committed records, as far as the queue has room. True if none of them is left in the ring.
  bool take(std::uint64_t commit, const Rules& rules, TaskNames& names, ReaderCounts& counts);
  // Frees the ring if `owner` still holds it.
  bool reclaim(std::uint32_t owner);

  bool empty() const { return queue_.empty(); }
  std::uint64_t front_time() const { return front().tsc; }
  shared::RecordHead front() const;  // its `tsc` is a possible time, not before that of the previous record
  // The parts of the record with the head `head`.
  std::span<std::uint8_t> payload_of(const shared::RecordHead& head);
  std::span<const std::uint8_t> stack_of(const shared::RecordHead& head);  // empty: it has none
  void pop(const shared::RecordHead& head);
  // Whether no waiting record asks the reader for more than to hand it on: a name, a filter, a stack, the number of its task.
  bool is_plain() const { return special_ == 0; }
  // All that wait, one after the other; and takes so many bytes of them, which are plain records.
  std::span<std::uint8_t> waiting() { return {queue_.front(), queue_.size()}; }
  void pop_plain(std::size_t bytes) { queue_.pop(bytes); }

  std::uint64_t last_time() const { return last_time_; }  // time of the latest record taken
  // The fill level of the ring at the last look: 0..1.
  double fill() const { return fill_; }

 private:
  struct Sifted {
    std::uint64_t taken = 0;  // bytes of the copy that are whole records
    std::uint64_t kept = 0;   // of these, bytes that go into the queue
    bool broken = false;      // what follows is not a record
  };
  Sifted take_piece(std::uint64_t size, bool whole, const Rules& rules, TaskNames& names, ReaderCounts& counts);
  Sifted sift(std::uint8_t* bytes, std::uint64_t size, bool whole, const Rules& rules, TaskNames& names,
              ReaderCounts& counts);
  std::uint64_t pass_usual(std::span<const std::uint8_t> bytes, const Rules& rules, const shared::TaskNumber& task);
  void check_number(std::uint32_t number, ReaderCounts& counts);
  std::uint64_t possible_time(const shared::RecordHead& head, const Rules& rules, ReaderCounts& counts);
  void resynchronise(std::uint64_t commit, ReaderCounts& counts);
  void publish_tail();

  shared::Ring* ring_;
  const std::uint8_t* data_;
  bool of_cpu_;
  std::uint64_t ring_bytes_;
  std::uint32_t tail_ = 0;         // in units of 8 bytes, modulo 2^32
  std::uint32_t next_number_ = 0;  // the expected number of the record at `tail_`
  std::uint64_t last_time_ = 0;
  double fill_ = 0;
  ByteQueue queue_;
  std::uint64_t special_ = 0;  // records in the queue that are not plain
};

}  // namespace uprobe::trace
