// SPDX-License-Identifier: MIT
// Takes records out of one ring; see ring_copy.h.
#include "engine/trace/ring_copy.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "engine/shared/task_name.h"

namespace uprobe::trace {

namespace {

using shared::PayloadHead;
using shared::RecordHead;
using shared::task_of;

constexpr std::uint64_t kUnit = 8;
// The size of a piece that is copied and then checked while it is in the nearest cache. A record may be larger.
constexpr std::uint64_t kPiece = 8 << 10;
constexpr std::uint64_t kMinRecord = sizeof(RecordHead) + sizeof(PayloadHead);

std::uint32_t position_of(std::uint64_t commit) { return static_cast<std::uint32_t>(commit >> 32); }
std::uint32_t count_of(std::uint64_t commit) { return static_cast<std::uint32_t>(commit); }

template <class T>
T load_from(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Whether this can be the head of a record. Says nothing about its event.
bool is_frame(const RecordHead& head) {
  return head.length % kUnit == 0 && head.length >= kMinRecord && head.length <= shared::kMaxRecord &&
         head.payload_bytes >= sizeof(PayloadHead) && head.payload_bytes <= head.length - sizeof(RecordHead) &&
         head.payload_bytes <= shared::kMostPayload;
}

// See RingCopy::is_plain().
bool is_special(const RecordHead& head, const PayloadHead& payload) {
  constexpr std::uint32_t kAsks = shared::kRecordTaskName | shared::kRecordCommLater | shared::kRecordJudgeLater;
  return (head.flags & (kAsks | shared::kRecordStack)) != 0 || task_of(payload).is_elsewhere();
}

bool has_name_bytes(const RecordHead& head) {
  const std::uint32_t bytes = head.payload_bytes;
  return bytes == sizeof(PayloadHead) || bytes == sizeof(PayloadHead) + shared::kNameBytes;
}

}  // namespace

RingCopy::RingCopy(shared::Ring& ring, const std::uint8_t* data, std::uint64_t ring_bytes, bool of_cpu)
    : ring_(&ring), data_(data), of_cpu_(of_cpu), ring_bytes_(ring_bytes) {
  const std::uint64_t commit = look().commit;
  tail_ = std::atomic_ref(ring_->tail).load(std::memory_order_relaxed);
  next_number_ = count_of(commit);
  if (tail_ == position_of(commit)) return;
  const std::uint64_t offset = tail_ * kUnit & (ring_bytes_ - 1);
  next_number_ = load_from<RecordHead>(data_ + offset).number;
}

RingView RingCopy::look() const {
  RingView view;
  // `begun` before `commit`: a section that begins between the two loads is not seen, and its stamps are later than this look.
  const std::uint32_t begun = std::atomic_ref(ring_->begun).load(std::memory_order_acquire);
  if (!of_cpu_) view.owner = std::atomic_ref(ring_->owner).load(std::memory_order_acquire);
  view.stamp = std::atomic_ref(ring_->stamp).load(std::memory_order_acquire);
  view.commit = std::atomic_ref(ring_->commit).load(std::memory_order_acquire);
  view.writing = of_cpu_ ? begun == count_of(view.commit) + 1 : view.owner != 0;
  return view;
}

bool RingCopy::reclaim(std::uint32_t owner) {
  return std::atomic_ref(ring_->owner).compare_exchange_strong(owner, 0, std::memory_order_acq_rel);
}

RecordHead RingCopy::front() const { return load_from<RecordHead>(queue_.front()); }

std::span<std::uint8_t> RingCopy::payload_of(const RecordHead& head) {
  return {queue_.front() + sizeof head, head.payload_bytes};
}

std::span<const std::uint8_t> RingCopy::stack_of(const RecordHead& head) {
  const std::uint64_t begin = (sizeof head + head.payload_bytes + kUnit - 1) / kUnit * kUnit;
  if ((head.flags & shared::kRecordStack) == 0 || begin >= head.length) return {};
  return {queue_.front() + begin, head.length - begin};
}

void RingCopy::pop(const RecordHead& head) {
  if (special_ != 0 && is_special(head, load_from<PayloadHead>(queue_.front() + sizeof head))) --special_;
  queue_.pop(head.length);
}

// A writer may overwrite the bytes as soon as it sees the new tail, so everything has been copied by then.
void RingCopy::publish_tail() { std::atomic_ref(ring_->tail).store(tail_, std::memory_order_release); }

bool RingCopy::take(std::uint64_t commit, const Rules& rules, TaskNames& names, ReaderCounts& counts) {
  const std::uint64_t available = std::uint64_t{position_of(commit) - tail_} * kUnit;
  fill_ = std::min(1.0, static_cast<double>(available) / static_cast<double>(ring_bytes_));
  if (available == 0 && count_of(commit) == next_number_) return true;
  if (available == 0 || available > ring_bytes_) {
    resynchronise(commit, counts);
    return true;
  }
  const std::uint64_t room = rules.queue_limit - std::min(rules.queue_limit, queue_.size());
  const std::uint64_t most = std::min<std::uint64_t>(room, rules.portion);
  const bool whole = available <= most;
  if (!whole && room < shared::kMaxRecord) return false;

  std::uint64_t left = whole ? available : most / kUnit * kUnit;
  queue_.room(left);
  for (std::uint64_t piece = kPiece; left != 0;) {
    const std::uint64_t size = std::min(left, piece);
    const bool is_last = whole && size == left;
    const Sifted sifted = take_piece(size, is_last, rules, names, counts);
    if (sifted.broken || (is_last && next_number_ != count_of(commit))) {
      resynchronise(commit, counts);
      return true;
    }
    if (sifted.taken == 0 && size == left) break;
    piece = sifted.taken == 0 ? std::uint64_t{shared::kMaxRecord} : kPiece;
    left -= sifted.taken;
  }
  publish_tail();
  return whole;
}

RingCopy::Sifted RingCopy::take_piece(std::uint64_t size, bool whole, const Rules& rules, TaskNames& names,
                                      ReaderCounts& counts) {
  std::uint8_t* copy = queue_.room(size);
  std::memcpy(copy, data_ + (tail_ * kUnit & (ring_bytes_ - 1)), size);
  const Sifted sifted = sift(copy, size, whole, rules, names, counts);
  queue_.append(sifted.kept);
  tail_ += static_cast<std::uint32_t>(sifted.taken / kUnit);
  return sifted;
}

// Continues at the head, the only boundary that is certain. The numbers tell how many records are dropped, limited to as many
// as the skipped bytes can hold.
void RingCopy::resynchronise(std::uint64_t commit, ReaderCounts& counts) {
  const std::uint64_t skipped = std::min(std::uint64_t{position_of(commit) - tail_} * kUnit, ring_bytes_);
  const std::uint64_t lost = count_of(commit) - next_number_;
  counts.damaged += std::clamp<std::uint64_t>(lost, 1, std::max<std::uint64_t>(skipped / kMinRecord, 1));
  tail_ = position_of(commit);
  next_number_ = count_of(commit);
  publish_tail();
}

// Passes over records to which nothing has to be done, as most: good ones of that task, which ask for nothing, in order of number
// and of time. Returns their bytes.
std::uint64_t RingCopy::pass_usual(std::span<const std::uint8_t> bytes, const Rules& rules,
                                   const shared::TaskNumber& task) {
  if (task.is_elsewhere() || rules.latest < last_time_) return 0;
  const std::uint8_t *at = bytes.data(), *const end = at + bytes.size();
  const std::span<const std::uint32_t> fixed = rules.fixed_bytes;
  const std::uint64_t wanted = std::uint64_t{task.thread} << 16;
  std::uint32_t number = next_number_;
  std::uint64_t time = last_time_;
  while (static_cast<std::uint64_t>(end - at) >= kMinRecord) {
    const auto head = load_from<RecordHead>(at);
    const auto task_word = load_from<std::uint64_t>(at + sizeof head);  // of PayloadHead
    const std::uint64_t type = task_word & 0xffff, length = head.length;
    if (task_word >> 16 != wanted || head.number != number || (head.flags & ~shared::kRecordNoEntry) != 0) break;
    if (type >= fixed.size() || head.payload_bytes < fixed[type] || head.payload_bytes > shared::kMostPayload) break;
    if (length % kUnit != 0 || length > static_cast<std::uint64_t>(end - at) ||
        length < sizeof head + std::uint64_t{head.payload_bytes})
      break;
    if (head.tsc - time > rules.latest - time) break;  // also if it is less than `time`
    ++number;
    time = head.tsc;
    at += length;
  }
  next_number_ = number;
  last_time_ = time;
  return static_cast<std::uint64_t>(at - bytes.data());
}

// Walks through the copied records and closes the gaps of refused ones. A copy of only a part of the committed bytes may end
// inside a record, which is left for the next time.
RingCopy::Sifted RingCopy::sift(std::uint8_t* bytes, std::uint64_t size, bool whole, const Rules& rules,
                                TaskNames& names, ReaderCounts& counts) {
  Sifted done;
  shared::TaskNumber seen{};
  bool has_seen = false;
  while (done.taken < size) {
    if (has_seen && done.kept == done.taken) {
      const std::uint64_t usual = pass_usual({bytes + done.taken, size - done.taken}, rules, seen);
      done.taken += usual, done.kept += usual;
      if (done.taken == size) break;
    }
    const std::uint64_t left = size - done.taken;
    std::uint8_t* record = bytes + done.taken;
    RecordHead head{};
    if (left >= kMinRecord) head = load_from<RecordHead>(record);
    const bool is_record = left >= kMinRecord && is_frame(head);
    if (!is_record || head.length > left) {
      done.broken = whole || (left >= kMinRecord && !is_record);
      return done;
    }
    done.taken += head.length;
    check_number(head.number, counts);
    const std::uint64_t time = possible_time(head, rules, counts);

    const auto payload = load_from<PayloadHead>(record + sizeof head);
    const bool is_name = (head.flags & shared::kRecordTaskName) != 0;
    if (is_name ? !has_name_bytes(head)
                : payload.type >= rules.fixed_bytes.size() || head.payload_bytes < rules.fixed_bytes[payload.type]) {
      ++counts.damaged;
      continue;
    }
    const shared::TaskNumber task = task_of(payload);
    if (is_name && (payload.type & shared::kTaskBegins) != 0) names.begin(task);
    if ((!is_name || task.is_elsewhere()) && (task != seen || !has_seen)) names.see(seen = task), has_seen = true;
    special_ += is_special(head, payload) ? 1 : 0;
    std::uint8_t* place = bytes + done.kept;
    if (place != record) std::memmove(place, record, head.length);
    std::memcpy(place + offsetof(RecordHead, tsc), &time, sizeof time);
    done.kept += head.length;
  }
  return done;
}

// A number that is too small means that the ring is inconsistent, one that is too large that records are missing.
void RingCopy::check_number(std::uint32_t number, ReaderCounts& counts) {
  const std::uint32_t ahead = number - next_number_;
  next_number_ = number + 1;
  if (ahead == 0) return;
  if (ahead <= ring_bytes_ / kMinRecord)
    counts.missing += ahead;
  else
    ++counts.damaged;
}

// A ring is sorted, except for the few ticks by which the counters of two CPUs may differ. A record without a time gets that of
// the record before it, or the time at which the ring was last seen free.
std::uint64_t RingCopy::possible_time(const RecordHead& head, const Rules& rules, ReaderCounts& counts) {
  const std::uint64_t earliest = last_time_;
  std::uint64_t time = head.tsc;
  if ((head.flags & shared::kRecordNoClock) != 0) {
    time = std::max(earliest, rules.floor);
  } else if (time > rules.latest) {
    ++counts.bad_stamps;
    time = std::max(earliest, rules.floor);
  } else if (time < earliest) {
    if (earliest - time > rules.slack) ++counts.bad_stamps;
    time = earliest;
  }
  last_time_ = time;
  return time;
}

}  // namespace uprobe::trace
