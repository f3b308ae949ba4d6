// SPDX-License-Identifier: MIT
#include "preload/thinning.h"

namespace uprobe::agent {
namespace {

__extension__ using Wide = unsigned __int128;

// Each bit of the result depends on all bits of the word (the finalizer of MurmurHash3): hits at regular times draw as evenly
// as others.
u64 mixed(u64 word) {
  word = (word ^ word >> 33) * 0xff51afd7ed558ccd;
  word = (word ^ word >> 33) * 0xc4ceb9fe1a85ec53;
  return word ^ word >> 33;
}

// Where the clock faults (PR_SET_TSC) a count of the process's hits serves.
u64 moment() {
  static u64 hits;
  u64 tsc = 0;
  return uprobe_clock(&tsc) ? tsc : __atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED);
}

bool is_unsampled(const Hit& hit, u32 one_in) {
  u32& lot = hit.noted->lot;
  if (lot == 0) lot = static_cast<u32>(mixed(moment() ^ u64{hit.tid} << 40) >> 32) | 1;
  return u64{lot} * one_in >> 32 != 0;
}

bool is_too_short(const EntryRecord& entry, const Event& event) {
  return event.min_latency != 0 && (!entry.known || entry.nanoseconds < event.min_latency);
}

void count_left_out(const AreaHeader& area, const Event& event, u64& counter) {
  if (is_recording(area) && is_recording(event)) count(counter);
}

}  // namespace

[[gnu::noinline]] bool choose(const Hit& hit, AreaHeader* area, const shared::Consumer& consumer) {
  if (consumer.event >= area->event_count) return true;
  const Event& event = at_offset<Event>(area, area->event_offset)[consumer.event];
  if (event.one_in == 0 || !is_unsampled(hit, event.one_in)) return true;
  if (consumer.kind == static_cast<u8>(shared::ConsumerKind::entry))
    count_left_out(*area, event, counts_of(area, consumer.event).unsampled);
  return false;
}

[[gnu::noinline]] bool is_kept(const Hit& hit, AreaHeader* area, const Event& event, u32 event_index) {
  EventCounts& counts = counts_of(area, event_index);
  if (event.one_in != 0 && !hit.noted->known) return count_left_out(*area, event, counts.unsampled), false;
  if (is_too_short(*hit.noted, event)) return count_left_out(*area, event, counts.too_short), false;
  return true;
}

// A tenth of a second's records may come at once. The word is shared, and a process may write nonsense there: it spoils the
// rate of its own trust domain.
[[gnu::noinline]] UPROBE_IN_SECTION Built take_turn(const RecordBuilder& builder, u64 tsc) {
  constexpr u64 kSecond = 1000000000, kMostTries = 16;
  const u32 rate = builder.event->per_second;
  if (tsc == 0 || builder.area->tick_rate == 0 || rate > kSecond) return Built::ok;
  const u64 now = static_cast<u64>(Wide{tsc} * builder.area->tick_rate >> 32), step = kSecond / rate;
  const u64 burst = rate < 10 ? 0 : (rate / 10 - 1) * step;
  u64& word = builder.counts->next_turn;
  u64 next = __atomic_load_n(&word, __ATOMIC_RELAXED);
  for (u64 i = 0; i < kMostTries; ++i) {
    if (next > now && next - now > burst) return Built::over_rate;
    const u64 wanted = (next > now ? next : now) + step;
    if (__atomic_compare_exchange_n(&word, &next, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return Built::ok;
  }
  return Built::over_rate;
}

}  // namespace uprobe::agent
