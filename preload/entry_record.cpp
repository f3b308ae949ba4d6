// SPDX-License-Identifier: MIT
// Entry records: values that functions leave at their entries for the events at their returns: the time, and some words. Best
// effort: a value may be missing, but none is another call's.
//
// The *place* of an entry names it: session, event, function, and the stack slot that holds the return address. Its *seal* is a
// digest of state that the call preserves: the return address and the callee-saved registers. A return takes the record of its
// place if the seal is the same, and takes it once.
//
//   left by longjmp, exceptions, exit      no return takes the record. The next call in that place, in any thread, writes over
//   it:
//                                          the table is the process's, not a thread's.
//   coroutines, stacks moved by threads    the slot's address stays the same
//   fork                                   each process has its own table, as it has its own stack
//   two threads at once in one way         words of both, and a check that fits neither
//   vfork, setjmp: two returns of a call   the first takes the record
//   an entry that was not seen             an older record of the same function in the same place, left by longjmp and with the
//                                          same seal, would be taken. From the session's first entry in the place on all are
//                                          seen: the point stays armed, and makes records also while recording is off.
//   stacks copied away and back            one slot for two calls under way at once: the callee-saved registers tell them apart
//                                          unless these are equal too (greenlets). Go: the tool refuses entry records.
#include "preload/agent.h"
#include "preload/call_sums.h"
#include "preload/self_time.h"
#include "preload/stubs.h"
#include "preload/thinning.h"

namespace uprobe::agent {
namespace {

__extension__ using Wide = unsigned __int128;

struct Noted {
  u64 place, seal, tsc;
  u64 inside;  // kEventSelf: of the thread, when the call began; else 0. See self_time.h
  u64 words[shared::kNotedWords];
  u64 check;  // digest of all others; 0: empty
};
constexpr u32 kSetBits = 10, kWays = 4;

Noted table[kWays << kSetBits];

u64 mix(u64 sum, u64 word) {
  sum = (sum ^ word) * 0x9e3779b97f4a7c15;
  return sum ^ sum >> 32;
}

u64 place_of(const AreaHeader* area, u32 event_index, u64 function, u64 slot) {
  return mix(mix(mix(mix(area->name, event_index), function), slot), slot >> 3);
}

u64 seal_of(const Registers& registers, u64 address) {
  u64 sum = mix(0, past_stubs(address));
  for (const shared::Reg reg : shared::kKeptRegisters) sum = mix(sum, registers[reg]);
  return sum;
}

u64 check_of(const Noted& noted) {
  u64 sum = mix(mix(mix(mix(1, noted.place), noted.seal), noted.tsc), noted.inside);
  for (const u64 word : noted.words) sum = mix(sum, word);
  return sum | 1;
}

Noted* set_of(u64 place) { return &table[(place >> (64 - kSetBits)) * kWays]; }

u64 load(const u64& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
void store(u64& word, u64 value) { __atomic_store_n(&word, value, __ATOMIC_RELEASE); }

// The way that holds the record of the place.
Noted* find(u64 place) {
  Noted* const set = set_of(place);
  for (u32 i = 0; i < kWays; ++i)
    if (load(set[i].check) != 0 && load(set[i].place) == place) return &set[i];
  return nullptr;
}

// A way that holds no record, if there is one: long calls keep theirs.
Noted& way_for(u64 place, u64 tsc) {
  Noted* const set = set_of(place);
  for (u32 i = 0; i < kWays; ++i)
    if (load(set[i].check) == 0) return set[i];
  return set[tsc >> 4 & (kWays - 1)];
}

void copy(Noted& to, const Noted& from) {
  store(to.place, load(from.place)), store(to.seal, load(from.seal)), store(to.tsc, load(from.tsc));
  store(to.inside, load(from.inside));
  for (u32 i = 0; i < shared::kNotedWords; ++i) store(to.words[i], load(from.words[i]));
}

u64 nanoseconds_between(const AreaHeader* area, u64 from, u64 to) {
  return static_cast<u64>(Wide{to - from} * area->tick_rate >> 32);
}

// The call that began when the thread's finished calls had taken `inside` is one of them now.
void finish_call(const Hit& hit, AreaHeader* area, u32 event_index, u64 inside) {
  EntryRecord& entry = *hit.noted;
  entry.self_known = add_finished(*area, hit.tid, inside, entry.nanoseconds, entry.self);
  if (!entry.self_known) count(counts_of(area, event_index).self_unknown);
}

}  // namespace

const Event* noting_event(const AreaHeader* area, u32 event_index) {
  if (event_index >= area->event_count) return nullptr;
  const Event* event = &at_offset<Event>(area, area->event_offset)[event_index];
  return (event->flags & shared::kEventNotes) != 0 ? event : nullptr;
}

// An older record of the place goes first, whether or not a new one is made: not of a call that the event leaves out
// (thinning.h).
[[gnu::noinline]] void note_entry(const Hit& hit, AreaHeader* area, u32 event_index, bool is_chosen) {
  const Event* event = noting_event(area, event_index);
  if (event == nullptr) return;
  if (event->sum != 0) return begin_call(hit, area, *event, event_index);
  const bool wants_self = (event->flags & shared::kEventSelf) != 0;
  if (wants_self) count(counts_of(area, event_index).entries);
  const Registers& registers = *hit.registers;
  const u64 slot = registers[shared::Reg::sp];
  Noted made;
  made.place = place_of(area, event_index, hit.point->address, slot);
  if (Noted* const older = find(made.place)) store(older->check, 0);
  u64 address = 0;
  if (!is_chosen || !hit.may_fault || !uprobe_peek8(slot, &address)) return;
  made.seal = seal_of(registers, address);
  made.inside = wants_self ? finished_inside(*area, hit.tid) : 0;
  if (!build_note(hit, area, *event, made.words) || !uprobe_clock(&made.tsc)) return;
  Noted& way = way_for(made.place, made.tsc);
  store(way.check, 0);
  copy(way, made);
  store(way.check, check_of(made));
}

namespace {

void find_entry(const Hit& hit, AreaHeader* area, const Event& event, u32 event_index, u64 slot) {
  EntryRecord& entry = *hit.noted;
  entry.known = entry.self_known = false, entry.self = 0;
  const u64 place = place_of(area, event_index, hit.function, slot);
  Noted* const way = find(place);
  if (way == nullptr) return;
  Noted taken;
  u64 check = load(way->check), now = 0;
  copy(taken, *way);
  if (taken.place != place || check != check_of(taken)) return;
  if (!__atomic_compare_exchange_n(&way->check, &check, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
  const Registers& registers = *hit.registers;
  if (taken.seal != seal_of(registers, registers[shared::Reg::ip])) return;
  if (!uprobe_clock(&now) || now < taken.tsc || area->tick_rate == 0) return;
  entry.known = true;
  entry.nanoseconds = nanoseconds_between(area, taken.tsc, now);
  if ((event.flags & shared::kEventSelf) != 0) finish_call(hit, area, event_index, taken.inside);
  copy_words(entry.words, taken.words, sizeof entry.words);
}

}  // namespace

[[gnu::noinline]] bool take_entry(const Hit& hit, AreaHeader* area, u32 event_index, u64 slot) {
  const Event* event = noting_event(area, event_index);
  if (event == nullptr) return true;
  if (event->sum != 0) return end_call(hit, area, *event, event_index, slot), true;
  find_entry(hit, area, *event, event_index, slot);
  if (!hit.noted->known && (event->flags & shared::kEventSelf) != 0) add_unknown(*area, hit.tid);
  return (event->flags & shared::kEventThins) == 0 || is_kept(hit, area, *event, event_index);
}

}  // namespace uprobe::agent
