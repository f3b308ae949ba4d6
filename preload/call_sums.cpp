// SPDX-License-Identifier: MIT
// See engine/shared/call_sums.h for the sums. When a call began is kept as an entry record is (entry_record.cpp), in a table that is
// quicker to use: a place and a seal name the call, a later call in the same place overwrites one that was abandoned, and a record
// is taken once. A check of all words of a record and of the seal makes it valid: what two threads, or a thread and a handler that
// interrupts it, have written to one way at once fits neither, or is the record of one of them. A lost record costs the time of one
// call, which is counted as untimed.
#include "preload/call_sums.h"

#include "engine/shared/call_sums.h"
#include "preload/after_return.h"
#include "preload/ring.h"
#include "preload/self_time.h"
#include "preload/stubs.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

using shared::SumCell;
using shared::SumRow;

extern "C" __attribute__((visibility("hidden"))) bool uprobe_add_on_cpu(Rseq* rseq, u32 cpu, SumCell* cell, u64 latency,
                                                                        u64 self);

__extension__ using Wide = unsigned __int128;

struct Call {
  u64 place, began, inside;  // `inside`: see self_time.h
  u64 check;                 // digest of all others and of the seal; 0: empty
};
static_assert(sizeof(Call) == 32);
constexpr u32 kSetBits = 10, kWays = 4;
alignas(64) Call calls[kWays << kSetBits];

// Odd numbers without a pattern. Products of independent words take as long as one.
constexpr u64 kFactors[] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb, 0xd6e8feb86659fd93,
                            0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53, 0xa0761d6478bd642f, 0xe7037ed1a0b428db};
static_assert(sizeof shared::kKeptRegisters < sizeof kFactors / sizeof *kFactors);

u64 folded(u64 sum) {
  sum = (sum ^ sum >> 32) * kFactors[0];
  return sum ^ sum >> 32;
}

u64 place_of(const AreaHeader* area, u32 event_index, u64 function, u64 slot) {
  return folded(area->name + event_index * kFactors[1] + function * kFactors[2] + slot * kFactors[3]);
}

u64 seal_of(const Registers& registers, u64 address) {
  u64 sum = address * kFactors[7];
#pragma GCC unroll 8
  for (u32 i = 0; i < sizeof shared::kKeptRegisters; ++i) {
    const u64 word = registers[shared::kKeptRegisters[i]];
    sum += (word ^ word >> 32) * kFactors[i];
  }
  return sum;
}

u64 check_of(const Call& call, u64 seal) {
  return folded(call.place * kFactors[4] + call.began * kFactors[5] + call.inside * kFactors[6] + seal) | 1;
}

u64 load(const u64& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
void store(u64& word, u64 value) { __atomic_store_n(&word, value, __ATOMIC_RELEASE); }

Call* set_of(u64 place) { return &calls[(place >> (64 - kSetBits)) * kWays]; }

Call* find(u64 place) {
  Call* const set = set_of(place);
#pragma GCC unroll 4
  for (u32 i = 0; i < kWays; ++i)
    if (load(set[i].place) == place && load(set[i].check) != 0) return &set[i];
  return nullptr;
}

// The way of an older call in the place, one that is empty, or any.
Call& way_for(u64 place, u64 began) {
  Call* const set = set_of(place);
  Call* chosen = &set[began >> 4 & (kWays - 1)];
#pragma GCC unroll 4
  for (u32 i = 0; i < kWays; ++i) {
    if (load(set[i].place) == place) return set[i];
    if (load(set[i].check) == 0) chosen = &set[i];
  }
  return *chosen;
}

// The last of these stores makes the record valid.
void keep(const Call& made, u64 seal) {
  Call& way = way_for(made.place, made.began);
  store(way.check, 0);
  store(way.place, made.place), store(way.began, made.began), store(way.inside, made.inside);
  store(way.check, check_of(made, seal));
}

// Which cell of a row: that of the calls that began, or that of a latency.
struct Bucket {
  bool is_entry;
  u32 group, part;
};

Bucket bucket_of(u64 latency) {
  const u32 group = shared::sum_group(latency);
  return {false, group, shared::sum_part(latency, group)};
}

// 0: there is none left.
u32 add_chunk(AreaHeader* area, u32& place) {
  auto& head = *at_offset<shared::SumsHead>(area, area->sum_offset);
  if (__atomic_load_n(&head.next_chunk, __ATOMIC_RELAXED) >= area->sum_chunks) return 0;
  const u32 number = __atomic_fetch_add(&head.next_chunk, 1, __ATOMIC_RELAXED);
  if (number >= area->sum_chunks) return 0;
  u32 others = 0;
  const bool is_ours =
      __atomic_compare_exchange_n(&place, &others, number + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return is_ours ? number + 1 : others;
}

// Says who the bank's process is. getpid: changes nothing, and a filter that may not know it is asked no more than for a name.
void sign_bank(const Hit& hit, shared::SumBank& bank) {
  const ProcessBlock& block = *hit.block;
  const bool may_ask = (block.flags & shared::kBlockFiltered) == 0;
  const u32 number = may_ask ? static_cast<u32>(system_call(kSysGetpid)) : hit.tid;
  if (may_ask && number == hit.tid) static_cast<void>(get_task_name(bank.name));
  bank.is_thread = may_ask ? 0 : 1;
  const shared::TaskWords words = task_words(block);
  const u32 own = shared::is_elsewhere(words) ? number & shared::kNumberMask : number;
  __atomic_store_n(&bank.task, shared::task_of(words.process, words.thread | own).key(), __ATOMIC_RELEASE);
}

// Not inlined: a process comes here once. A bank that two threads take at once stays empty.
[[gnu::noinline]] u32 take_bank(const Hit& hit, AreaHeader* area, u32& taken) {
  auto& head = *at_offset<shared::SumsHead>(area, area->sum_offset);
  const u32 most = area->sum_banks - 1;  // besides bank 0
  u32 number = __atomic_load_n(&head.next_bank, __ATOMIC_RELAXED);
  if (number < most) number = __atomic_fetch_add(&head.next_bank, 1, __ATOMIC_RELAXED);
  if (number < most)
    sign_bank(hit, at_offset<shared::SumBank>(area, area->sum_bank_offset)[++number]);
  else
    number = 0;
  u32 others = 0;
  const bool is_ours =
      __atomic_compare_exchange_n(&taken, &others, number + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return is_ours ? number : others - 1;
}

// Below sum_banks.
u32 bank_of(const Hit& hit, AreaHeader* area) {
  if (area->sum_banks <= 1) return 0;
  u32& taken = mailbox_of(area)->sum_bank;
  const u32 known = __atomic_load_n(&taken, __ATOMIC_RELAXED);
  const u32 bank = known != 0 ? known - 1 : take_bank(hit, area, taken);
  return bank < area->sum_banks ? bank : 0;
}

SumRow& row_of(AreaHeader* area, u32 bank, u32 row, u32 sum) {
  auto* rows = at_offset<SumRow>(area, area->sum_offset + sizeof(shared::SumsHead));
  return rows[(u64{bank} * area->sum_rows + row) * area->sum_count + sum];
}

// Where the calls of one function in one process are added; `number` and `bank` are below the plan's numbers.
struct Sums {
  AreaHeader* area;
  u32 bank;
  u32 number;
};

// `row` is below the plan's number. Null: there is no chunk for the bucket.
SumCell* cell_of(const Sums& sums, u32 row, const Bucket& bucket) {
  AreaHeader* const area = sums.area;
  SumRow& of = row_of(area, sums.bank, row, sums.number);
  if (bucket.is_entry) return &of.entries;
  u32 chunk = __atomic_load_n(&of.chunks[bucket.group], __ATOMIC_RELAXED);
  if (chunk == 0) chunk = add_chunk(area, of.chunks[bucket.group]);
  if (chunk == 0 || chunk > area->sum_chunks) return nullptr;
  auto* cells = at_offset<SumCell>(area, area->sum_chunk_offset);
  return cells + (u64{chunk - 1} * shared::kSumParts + bucket.part);
}

// False: the thread has no rseq of its own, is interrupted again and again, or there is no chunk.
bool add_on_cpu(const Sums& sums, Rseq* rseq, const Bucket& bucket, u64 latency, u64 self) {
  constexpr u32 kMostTries = 100;
  for (u32 tries = 0; rseq != nullptr && tries < kMostTries; ++tries) {
    const u32 cpu = __atomic_load_n(&rseq->cpu_id, __ATOMIC_RELAXED);
    if (cpu >= sums.area->sum_rows - 1) return false;
    SumCell* const cell = cell_of(sums, cpu, bucket);
    if (cell == nullptr) return false;
    if (uprobe_add_on_cpu(rseq, cpu, cell, latency, self)) return true;
  }
  return false;
}

bool add_shared(const Sums& sums, const Bucket& bucket, u64 latency, u64 self) {
  SumCell* const cell = cell_of(sums, sums.area->sum_rows - 1, bucket);
  if (cell == nullptr) return false;
  count(cell->count);
  if (latency != 0) __atomic_fetch_add(&cell->total[0], latency, __ATOMIC_RELAXED);
  if (self != 0) __atomic_fetch_add(&cell->self[0], self, __ATOMIC_RELAXED);
  return true;
}

bool has_rows(const AreaHeader* area, const Event& event) {
  return event.sum - 1 < area->sum_count && area->sum_rows != 0;
}

bool add(const Hit& hit, AreaHeader* area, const Event& event, const Bucket& bucket, u64 latency, u64 self) {
  if (!has_rows(area, event)) return false;
  const Sums sums{area, bank_of(hit, area), event.sum - 1};
  return add_on_cpu(sums, rseq_of(*hit.block), bucket, latency, self) || add_shared(sums, bucket, latency, self);
}

void add_loss(AreaHeader* area, u32 bank, const Event& event, shared::SumLoss loss) {
  if (area->sum_banks <= 1 || !has_rows(area, event)) return;
  count(shared::loss_of(row_of(area, bank, area->sum_rows - 1, event.sum - 1).entries, loss));
}

// Whether it is known how long the call took until `now`. Takes its record.
bool take(const Hit& hit, AreaHeader* area, u64 place, u64 now) {
  Call* const way = find(place);
  if (way == nullptr) return false;
  const Call taken{load(way->place), load(way->began), load(way->inside), load(way->check)};
  const u64 seal = seal_of(*hit.registers, (*hit.registers)[shared::Reg::ip]);
  if (taken.place != place) return false;
  store(way->check, 0);
  if (taken.check != check_of(taken, seal) || now < taken.began || area->tick_rate == 0) return false;
  EntryRecord& entry = *hit.noted;
  entry.known = true;
  entry.nanoseconds = static_cast<u64>(Wide{now - taken.began} * area->tick_rate >> 32);
  entry.self_known = add_finished(*area, hit.tid, taken.inside, entry.nanoseconds, entry.self);
  return true;
}

}  // namespace

void count_call(const Hit& hit, AreaHeader* area, const Event& event) {
  if (is_recording(*area) && is_recording(event)) static_cast<void>(add(hit, area, event, {true, 0, 0}, 0, 0));
}

void begin_call(const Hit& hit, AreaHeader* area, const Event& event, u32 event_index) {
  count_call(hit, area, event);
  const Registers& registers = *hit.registers;
  const u64 slot = registers[shared::Reg::sp];
  Call made{place_of(area, event_index, hit.point->address, slot), 0, 0, 0};
  u64 address = 0;
  if (!hit.may_fault || !uprobe_peek8(slot, &address)) return;
  made.inside = finished_inside(*area, hit.tid);
  const u64 seal = seal_of(registers, past_stubs(address));
  if (uprobe_clock(&made.began)) keep(made, seal);
}

void end_call(const Hit& hit, AreaHeader* area, const Event& event, u32 event_index, u64 slot) {
  u64 now = 0;
  if (!uprobe_clock(&now)) now = 0;  // before any record
  EntryRecord& entry = *hit.noted;
  entry.known = entry.self_known = false, entry.self = 0;
  const bool is_timed = take(hit, area, place_of(area, event_index, hit.function, slot), now);
  if (!is_timed) add_unknown(*area, hit.tid);
  if (!is_recording(*area) || !is_recording(event)) return;
  EventCounts& counts = counts_of(area, event_index);
  if (is_timed && !entry.self_known) {
    count(counts.self_unknown);
    add_loss(area, bank_of(hit, area), event, shared::SumLoss::self_unknown);
  }
  if (is_timed && add(hit, area, event, bucket_of(entry.nanoseconds), entry.nanoseconds, entry.self)) return;
  count(counts.untimed);
  add_loss(area, bank_of(hit, area), event, shared::SumLoss::untimed);
}

void miss_return(AreaHeader* area, const Event& event) {
  if (event.sum == 0 || area->sum_banks <= 1) return;
  const u32 taken = __atomic_load_n(&mailbox_of(area)->sum_bank, __ATOMIC_RELAXED);
  add_loss(area, taken != 0 && taken <= area->sum_banks ? taken - 1 : 0, event, shared::SumLoss::unfollowed);
}

namespace {

// The only consumer of the point; null: it has none, or several.
const shared::Consumer* only_consumer(const ProcessBlock& block, const Point& point) {
  if (point.consumer == 0 || point.consumer > block.consumer_count) return nullptr;
  const shared::Consumer& consumer = at_offset<shared::Consumer>(&block, block.consumer_offset)[point.consumer - 1];
  return consumer.next == 0 ? &consumer : nullptr;
}

}  // namespace

// Not inlined: only such a hit needs the stack for it.
[[gnu::noinline, gnu::flatten]] bool sum_alone(Hit& hit) {
  const ProcessBlock& block = *hit.block;
  if (hit.point->role != static_cast<u32>(shared::PointRole::probe) || block.semaphore_count != 0) return false;
  const shared::Consumer* const consumer = only_consumer(block, *hit.point);
  if (consumer == nullptr) return false;
  AreaHeader* const area = session_area(block, consumer->session);
  if (area == nullptr || consumer->event >= area->event_count) return false;
  const Event& event = at_offset<Event>(area, area->event_offset)[consumer->event];
  if (!is_summed_alone(event)) return false;
  if (consumer->kind == static_cast<u8>(shared::ConsumerKind::note))
    return begin_call(hit, area, event, consumer->event), true;
  if (consumer->kind != static_cast<u8>(shared::ConsumerKind::exit)) return false;
  EntryRecord noted;
  hit.noted = &noted;
  hit.function = hit.point->address - static_cast<u64>(i64{consumer->distance});
  if (step_after_return(hit, {consumer->lead, u32{consumer->lead} + consumer->pops, consumer->restored}))
    end_call(hit, area, event, consumer->event, (*hit.registers)[shared::Reg::sp] - consumer->pops);
  return true;
}

}  // namespace uprobe::agent
