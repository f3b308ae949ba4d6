// SPDX-License-Identifier: MIT
// Watermark, merge and poll interval; see reader.h.
#include "engine/trace/reader.h"

#include <algorithm>
#include <cstring>

#include "engine/shared/task_name.h"

namespace uprobe::trace {

namespace {

using shared::task_of;
using std::chrono::microseconds;

// So many records are handed on between two looks at the rings, and by one poll.
constexpr std::size_t kSlice = 4096;
constexpr std::size_t kMostPerPoll = 65536;
// What is handed on in runs is taken in portions that stay in the cache.
constexpr std::size_t kPortion = 32 << 10;

// While records come, a ring of 4 MiB has to last from one poll to the next, even when several million hits a second start
// suddenly.
constexpr microseconds kShortest{1000}, kBrisk{8000}, kLongest{50000};
// The factor by which the interval grows from there while nothing comes, because programs pause. Reaching the longest takes a
// second.
constexpr double kCalmer = 1.05;
// The fill level at which the poll interval aims: a burst three times as strong still fits.
constexpr double kWantedFill = 0.25;

std::uint64_t in_ticks(const Clock& clock, std::chrono::nanoseconds time) {
  return clock.ticks(static_cast<std::uint64_t>(time.count()));
}

bool same_claim(const RingView& a, const RingView& b) {
  return a.writing == b.writing && a.owner == b.owner && a.stamp == b.stamp && a.commit == b.commit;
}

}  // namespace

Reader::Reader(Area& area, Clock& clock, TaskNames& names, ReaderOptions options)
    : area_(area), clock_(clock), names_(names), options_(std::move(options)) {
  slack_ = in_ticks(clock_, options_.slack);
  reclaim_after_ = in_ticks(clock_, options_.reclaim_after);
  stall_after_ = in_ticks(clock_, options_.stall_after);
  section_stall_after_ = in_ticks(clock_, options_.section_stall_after);
  know_events();
  know_parts();
}

// The limit on waiting records is shared by all rings. All that is known of a new part is that it did not exist at the last
// look.
void Reader::know_parts() {
  const std::size_t parts = area_.live_count(), rings = parts * area_.ring_count();
  if (sources_.size() == rings) return;
  queue_limit_ = std::max<std::size_t>(options_.pending_bytes / rings, 2 * shared::kMaxRecord);
  const std::uint64_t floor = sources_.empty() ? options_.now() : handed_on_;
  for (std::size_t part = sources_.size() / area_.ring_count(); part < parts; ++part) {
    const LiveArea& live = area_.live(part);
    for (std::uint32_t i = 0; i < area_.ring_count(); ++i)
      sources_.push_back({.copy = RingCopy(live.ring(i), live.data(i), area_.ring_bytes(), area_.is_cpu_ring(i)),
                          .of_cpu = area_.is_cpu_ring(i),
                          .floor = floor});
  }
}

void Reader::know_events() {
  while (fixed_bytes_.size() < area_.event_count())
    fixed_bytes_.push_back(area_.fixed_bytes(static_cast<std::uint32_t>(fixed_bytes_.size())));
  counts_.recorded.resize(fixed_bytes_.size());
  counts_.dropped.resize(fixed_bytes_.size());
}

// The time is read before any ring: a writer that claims a ring after it was seen free has a stamp later than `now`.
void Reader::collect(std::size_t portion) {
  know_parts();
  const std::uint64_t now = options_.now();
  for (Source& source : sources_) collect_from(source, now, portion);
}

void Reader::collect_from(Source& source, std::uint64_t now, std::size_t portion) {
  const RingView view = source.copy.look();
  const RingCopy::Rules rules{
      .fixed_bytes = fixed_bytes_,
      .floor = source.floor,
      .latest = options_.now() + slack_,
      .slack = slack_,
      .queue_limit = queue_limit_,
      .portion = portion,
  };
  follow_claim(source, view, now);
  source.emptied = source.copy.take(view.commit, rules, names_, counts_);
}

// If the ring is free, later records are stamped after `now`. If it is claimed, they are stamped after the claim's stamp, which
// may still be that of the previous record and so can only raise the floor. A claim that stays belongs to a thread that was
// stopped or killed between two instructions. A dead thread's ring is freed, and the floor is left for the next look, because
// the thread may have committed after this one. Successive claims with old stamps come from a target that lies.
void Reader::follow_claim(Source& source, const RingView& view, std::uint64_t now) {
  if (!view.writing) {
    source.claim = {};
    source.floor = std::max(source.floor, now);
    return;
  }
  source.floor = std::max({source.floor, std::min(view.stamp, now), now - std::min(now, stall_after_)});
  if (!same_claim(view, source.claim)) {
    source.claim = view;
    source.claimed_at = now;
    source.next_check = now + reclaim_after_;
    return;
  }
  const std::uint64_t stall_after = source.of_cpu ? section_stall_after_ : stall_after_;
  if (now - source.claimed_at >= stall_after) source.floor = std::max(source.floor, now);
  if (source.of_cpu || now < source.next_check) return;
  source.next_check = now + reclaim_after_;
  // For a thread of another PID namespace only its process is known.
  const std::uint32_t owner = view.owner & ~shared::kOwnerElsewhere;
  if (!options_.thread_is_alive(owner) && source.copy.reclaim(view.owner)) ++counts_.reclaimed_rings;
}

// All records that can still come, those which writers have not committed yet, are later.
std::uint64_t Reader::watermark() const {
  std::uint64_t limit = kNoLimit;
  for (const Source& source : sources_) limit = std::min(limit, source.floor - std::min(source.floor, slack_));
  return limit;
}

// Records left in a ring because memory is full are not earlier than the last record taken from it.
std::uint64_t Reader::taken_limit() const {
  std::uint64_t limit = kNoLimit;
  for (const Source& source : sources_)
    if (!source.emptied) limit = std::min(limit, source.copy.last_time());
  return limit;
}

// No record that has been taken and waits is older.
std::uint64_t Reader::first_waiting() const {
  std::uint64_t first = kNoLimit;
  for (const Source& source : sources_)
    if (!source.copy.empty()) first = std::min(first, source.copy.front_time());
  return first;
}

bool Reader::all_emptied() const { return std::ranges::all_of(sources_, &Source::emptied); }

std::size_t Reader::merge(std::uint64_t limit, std::size_t most, const Sink& sink) {
  heap_.clear();
  for (std::uint32_t i = 0; i < sources_.size(); ++i)
    if (!sources_[i].copy.empty()) heap_.push_back({sources_[i].copy.front_time(), i});
  std::make_heap(heap_.begin(), heap_.end());

  std::size_t done = 0;
  while (done < most && !heap_.empty() && heap_.front().time <= limit) {
    std::pop_heap(heap_.begin(), heap_.end());
    const std::uint32_t index = heap_.back().source;
    heap_.pop_back();
    RingCopy& ring = sources_[index].copy;
    // Continues with a ring until another one is older: usually for many records, because each CPU works on its own.
    const std::uint64_t until = heap_.empty() ? limit : std::min(limit, heap_.front().time);
    do {
      hand_on_first(ring, sink);
      ++done;
    } while (done < most && !ring.empty() && ring.front_time() <= until);
    if (ring.empty()) continue;
    heap_.push_back({ring.front_time(), index});
    std::push_heap(heap_.begin(), heap_.end());
  }
  return done;
}

void Reader::hand_on_first(RingCopy& ring, const Sink& sink) {
  const shared::RecordHead head = ring.front();
  const std::span<std::uint8_t> bytes = ring.payload_of(head);
  shared::PayloadHead payload;
  std::memcpy(&payload, bytes.data(), sizeof payload);
  const Maker maker{task_of(payload), clock_.to_ns(head.tsc)};
  if ((head.flags & shared::kRecordTaskName) != 0) {
    if (!maker.task.is_elsewhere()) names_.learn_process(maker.task, static_cast<std::uint32_t>(payload.ip));
    learn_name(bytes.subspan(sizeof payload), maker);
    return ring.pop(head);
  }
  const std::uint32_t tid = names_.number(maker.task);
  if (maker.task.is_elsewhere()) show_number(bytes, tid);
  if ((head.flags & shared::kRecordCommLater) != 0) fill_in_comm(bytes, payload.type, maker);
  if (!is_wanted(head, bytes, payload.type, maker)) {
    ++counts_.dropped[payload.type];
    return ring.pop(head);
  }
  if (head.tsc < handed_on_) ++counts_.order_breaks;
  handed_on_ = std::max(handed_on_, head.tsc);
  ++counts_.recorded[payload.type];
  sink({.ns = maker.ns,
        .tid = tid,
        .pid = names_.process(maker.task),
        .task = maker.task,
        .cpu = head.cpu,
        .type = payload.type,
        .flags = head.flags,
        .payload = bytes,
        .stack = ring.stack_of(head)});
  ring.pop(head);
}

// In the format of records (engine/shared/task_number.h).
void Reader::show_number(std::span<std::uint8_t> payload, std::uint32_t tid) {
  std::memset(payload.data() + offsetof(shared::PayloadHead, flags), 0, 2);
  std::memcpy(payload.data() + shared::kTaskOffset, &tid, sizeof tid);
}

// `name`: kNameBytes, or empty.
void Reader::learn_name(std::span<const std::uint8_t> name, const Maker& maker) {
  if (name.empty()) return names_.forget(maker.task, maker.ns);
  const auto end = std::find(name.begin(), name.end() - 1, std::uint8_t{0});
  names_.learn(maker.task, std::string(name.begin(), end), maker.ns);
}

// The agent has evaluated the filter unless it did not know the task's name or id.
bool Reader::is_wanted(const shared::RecordHead& head, std::span<const std::uint8_t> payload, std::uint16_t type,
                       const Maker& maker) {
  if ((head.flags & shared::kRecordJudgeLater) == 0) return true;
  std::uint8_t name[shared::kNameBytes] = {};
  const std::string_view known = names_.name(maker.task, maker.ns);
  std::copy_n(known.begin(), std::min(known.size(), sizeof name - 1), name);
  const shared::FilterInput input{payload.data(), static_cast<std::uint32_t>(payload.size()), head.cpu, name};
  return area_.judge(type, input) != shared::Verdict::drop;
}

// The agent left room for the name and a final NUL. A locator that points elsewhere is left alone.
void Reader::fill_in_comm(std::span<std::uint8_t> payload, std::uint16_t type, const Maker& maker) {
  const std::string_view name = names_.name(maker.task, maker.ns);
  for (const std::uint32_t place : area_.comm_locators(type)) {
    std::uint32_t locator = 0;
    if (place + sizeof locator > payload.size()) continue;
    std::memcpy(&locator, payload.data() + place, sizeof locator);
    const std::uint32_t offset = locator & 0xffff, length = locator >> 16;
    if (length == 0 || offset < fixed_bytes_[type] || offset + length > payload.size()) continue;
    const std::size_t shown = std::min<std::size_t>(name.size(), length - 1);
    std::memcpy(payload.data() + offset, name.data(), shown);
    std::memset(payload.data() + offset + shown, 0, length - shown);
  }
}

std::size_t Reader::hand_on_certain(const Sink& sink, const RunSink& runs) {
  return hand_on(std::min(watermark(), taken_limit()), kSlice, sink, runs);
}

void Reader::poll(const Sink& sink, const RunSink& runs) {
  clock_.keep(options_.now());
  names_.begin_batch(TaskNames::now_ns());
  double fill = 0;
  std::size_t done = 0;
  bool more = true;
  while (more && done < kMostPerPoll) {
    collect(runs ? kPortion : kAll);
    fill = std::max(fill, fullest());
    std::size_t slice = hand_on_certain(sink, runs);
    if (runs && slice == 0 && !all_emptied()) collect(), slice = hand_on_certain(sink, runs);
    // Memory is full and a writer delays everything: freeing memory comes before order.
    if (slice == 0 && !all_emptied()) slice = hand_on(taken_limit(), kSlice, sink, runs);
    done += slice;
    more = slice >= kSlice || (slice != 0 && !all_emptied());
  }
  certain_ = std::max(certain_, std::min({watermark(), taken_limit(), first_waiting(), options_.now()}));
  advise(fill, more);
}

double Reader::fullest() const {
  double fill = 0;
  for (const Source& source : sources_) fill = std::max(fill, source.copy.fill());
  return fill;
}

// Aims at the wanted fill level, and at most doubles the interval: rings that happened to be nearly empty say little about the
// future.
void Reader::advise(double fill, bool more) {
  if (more) {
    wait_ = microseconds{0};
    return;
  }
  const microseconds last = std::max(wait_, kShortest);
  const bool calm = fill == 0 && last >= kBrisk;
  const double factor = calm ? kCalmer : fill == 0 ? 2.0 : std::min(2.0, kWantedFill / fill);
  const auto next = microseconds(static_cast<std::int64_t>(static_cast<double>(last.count()) * factor));
  wait_ = std::clamp(next, kShortest, calm ? kLongest : kBrisk);
}

// Each round empties at least the queue that delayed the others. A ring holds no more than its size, so the number of rounds is
// limited even if the target goes on writing.
void Reader::finish(const Sink& sink, const RunSink& runs) {
  clock_.keep(options_.now());
  names_.begin_batch(TaskNames::now_ns());
  names_.refresh_all();
  const std::uint64_t rounds = sources_.size() * (area_.ring_bytes() / shared::kMaxRecord + 1);
  bool left = true;
  for (std::uint64_t round = 0; left && round < rounds; ++round) {
    collect();
    left = !all_emptied();
    hand_on(taken_limit(), kNoLimit, sink, runs);
  }
  hand_on(kNoLimit, kNoLimit, sink, runs);
}

}  // namespace uprobe::trace
