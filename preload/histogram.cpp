// SPDX-License-Identifier: MIT
// Adds hits to histograms (engine/shared/histogram.h). A hit finds or makes its entries from the payload, perhaps in an rseq
// section: if that restarts, it finds the entry that it has made, or leaves a claimed slot. Sums change after the section,
// once.
#include "preload/ring.h"
#include "preload/stack_walk.h"

namespace uprobe::agent {
namespace {

using shared::Histogram;
using shared::HistogramField;
using shared::HistogramGroup;
using shared::HistogramSlot;
using shared::HistogramSource;
using shared::Trigger;

// A histogram that lies wholly in the area; numbers that have been checked are not read again.
struct Map {
  const Histogram* head;
  shared::HistogramCounts* counts;
  HistogramSlot* slots;
  u8* entries;
  u32 slot_count, entry_count, entry_bytes;
  u32 keys, key_bytes;
  u32 sums;  // words before the key
};

UPROBE_IN_SECTION bool find_map(AreaHeader* area, u32 number, Map& map) {
  if (number >= area->histogram_count) return false;
  const Histogram& head = at_offset<Histogram>(area, area->histogram_offset)[number];
  const u32 values = head.value_count, slots = head.slot_offset, entries = head.entry_offset;
  map.head = &head;
  map.counts = at_offset<shared::HistogramCounts>(area, area->histogram_counts_offset) + number;
  map.keys = head.key_count, map.key_bytes = head.key_bytes;
  map.slot_count = head.slot_count, map.entry_count = head.entry_count;
  if (map.keys == 0 || map.keys > shared::kMaxHistogramKeys || values > shared::kMaxHistogramValues) return false;
  if (map.key_bytes == 0 || map.key_bytes > shared::kMaxHistogramKey || map.key_bytes % 8 != 0) return false;
  if (map.slot_count == 0 || (map.slot_count & (map.slot_count - 1)) != 0) return false;
  map.sums = shared::histogram_sums(values);
  map.entry_bytes = shared::histogram_entry_bytes(map.key_bytes, values);
  map.slots = at_offset<HistogramSlot>(area, slots);
  map.entries = at_offset<u8>(area, entries);
  return ((slots | entries) & 7) == 0 && slots + u64{map.slot_count} * 8 <= area->data_offset &&
         entries + u64{map.entry_count} * map.entry_bytes <= area->data_offset;
}

UPROBE_IN_SECTION u64* entry_of(const Map& map, u32 number) {
  return reinterpret_cast<u64*>(map.entries + u64{number} * map.entry_bytes);
}

// The exponent of the smallest power of two that is not below the value; of 0 as of 1.
UPROBE_IN_SECTION u64 log2_of(u64 value) { return value < 2 ? 0 : 64 - static_cast<u64>(__builtin_clzll(value - 1)); }

UPROBE_IN_SECTION u64 number_of(const HistogramField& field, const Payload& payload, u32 cpu) {
  u64 value = cpu;
  if (static_cast<HistogramSource>(field.source) == HistogramSource::number) {
    if (field.size == 0 || field.size > 8 || u64{field.offset} + field.size > payload.used) return 0;
    value = shared::bytes_at(payload.at + field.offset, field.size);
    const u32 unused = 64 - 8 * field.size;
    if (field.is_signed != 0) value = static_cast<u64>(static_cast<i64>(value << unused) >> unused);
  }
  if (static_cast<HistogramGroup>(field.group) == HistogramGroup::log2) return log2_of(value);
  if (static_cast<HistogramGroup>(field.group) == HistogramGroup::log2_parts)
    return shared::log2_part(value, field.width);
  const bool is_grouped = static_cast<HistogramGroup>(field.group) == HistogramGroup::buckets && field.width != 0;
  return is_grouped ? value - value % field.width : value;
}

// common_pid is the number in the tool's PID namespace, which the agent does not know.
UPROBE_IN_SECTION bool is_unknown_task(const RecordBuilder& builder, const HistogramField& field) {
  return static_cast<HistogramSource>(field.source) == HistogramSource::number &&
         shared::is_of_task(field.offset, field.size) && shared::is_elsewhere(task_words(*builder.hit->block));
}

UPROBE_IN_SECTION u64 number_key(const RecordBuilder& builder, const HistogramField& field, const Payload& payload) {
  if (!is_unknown_task(builder, field)) return number_of(field, payload, builder.cpu);
  const shared::TaskWords words = task_words(*builder.hit->block);
  return shared::task_of(words.process, words.thread | (builder.hit->tid & shared::kNumberMask)).key();
}

// Up to a NUL; the rest of the room is 0 already.
UPROBE_IN_SECTION void copy_text(u8* to, u32 room, const u8* from, u32 bytes) {
  for (u32 i = 0; i < bytes && i + 1 < room && from[i] != 0; ++i) to[i] = from[i];
}

UPROBE_IN_SECTION void put_text(u8* to, const HistogramField& field, const Payload& payload) {
  if (static_cast<HistogramSource>(field.source) == HistogramSource::characters) {
    const bool fits = u64{field.offset} + field.size <= payload.used;
    return copy_text(to, shared::kHistogramText, payload.at + field.offset, fits ? field.size : 0);
  }
  shared::StringData data;
  if (field.offset <= payload.used && payload.used - field.offset >= 4) {
    const u32 locator = shared::loaded_once(static_cast<u32>(shared::bytes_at(payload.at + field.offset, 4)));
    data = shared::string_in(payload.at, payload.used, 0, locator);
  }
  if (data.at != nullptr) return copy_text(to, shared::kHistogramText, data.at, data.size);
  const u64 fault = 0x29746c75616628;  // "(fault)"
  __builtin_memcpy(to, &fault, 8);
}

UPROBE_IN_SECTION u32 bytes_of(HistogramSource source) {
  switch (source) {
    case HistogramSource::number:
    case HistogramSource::cpu:
      return 8;
    case HistogramSource::stack:
      return 8 * shared::kHistogramFrames;
    case HistogramSource::text:
    case HistogramSource::characters:
      return shared::kHistogramText;
    case HistogramSource::task_name:
      return shared::kNameBytes;
  }
  return shared::kMaxHistogramKey + 1;
}

struct Key {
  u64 words[shared::kMaxHistogramKey / 8];
};

// The bytes before a stack at the end of the key; all where there is none.
UPROBE_IN_SECTION u32 bytes_before_stack(const Map& map) {
  for (u32 i = 0; i < map.keys; ++i) {
    const HistogramField& field = map.head->keys[i];
    const bool is_stack = static_cast<HistogramSource>(field.source) == HistogramSource::stack;
    if (is_stack && u32{field.key_offset} + bytes_of(HistogramSource::stack) == map.key_bytes) return field.key_offset;
  }
  return map.key_bytes;
}

// `used`: the bytes of the key before the zeroes after the last frame of a stack at its end.
UPROBE_IN_SECTION bool build_key(const RecordBuilder& builder, const Payload& payload, const Map& map, Key& key,
                                 u32& used) {
  const u32 tail = bytes_before_stack(map);
  used = map.key_bytes;
  for (u32 i = 0; i < tail / 8; ++i) *const_cast<volatile u64*>(&key.words[i]) = 0;
  for (u32 i = 0; i < map.keys; ++i) {
    const HistogramField field = map.head->keys[i];
    const auto source = static_cast<HistogramSource>(field.source);
    if (field.key_offset % 8 != 0 || u32{field.key_offset} + bytes_of(source) > map.key_bytes) return false;
    u64* const to = key.words + field.key_offset / 8;
    if (source == HistogramSource::task_name) {
      // The kernel fills the bytes after a name with zeroes.
      if (!fetch_name(builder, reinterpret_cast<u8*>(to))) return false;
    } else if (source == HistogramSource::stack) {
      const u32 frames = unwind_stack(*builder.hit, *builder.event, to, shared::kHistogramFrames);
      if (field.key_offset == tail) used = tail + 8 * frames;
    } else if (source == HistogramSource::number || source == HistogramSource::cpu)
      *to = number_key(builder, field, payload);
    else
      put_text(reinterpret_cast<u8*>(to), field, payload);
  }
  return true;
}

// The finaliser of MurmurHash3's 64-bit variant spreads each word.
UPROBE_IN_SECTION u64 mixed(u64 hash, u64 word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccd;
  return hash ^ hash >> 33;
}

// Each word is mixed with every other one before it: a processor does two such chains at a time.
UPROBE_IN_SECTION u32 hash_of(const Key& key, u32 bytes) {
  u64 hash = bytes, other = 0;
  u32 i = 0;
  for (; i + 1 < bytes / 8; i += 2) hash = mixed(hash, key.words[i]), other = mixed(other, key.words[i + 1]);
  if (i < bytes / 8) hash = mixed(hash, key.words[i]);
  return static_cast<u32>((mixed(hash, other) * 0xc4ceb9fe1a85ec53) >> 32);
}

// A key and its hash.
struct Wanted {
  const Key& key;
  u32 used, hash;
};

// What is after the used bytes of an entry is zero; a frame is not.
UPROBE_IN_SECTION bool has_key(const Map& map, u32 number, const Wanted& wanted) {
  if (number >= map.entry_count) return false;
  const u64* words = entry_of(map, number) + map.sums;
  for (u32 i = 0; i < wanted.used / 8; ++i)
    if (words[i] != wanted.key.words[i]) return false;
  return wanted.used >= map.key_bytes || words[wanted.used / 8] == 0;
}

// The caller has claimed the slot. Null: every entry is taken, and the slot stays claimed, since other writers may have passed
// it.
UPROBE_IN_SECTION u64* make_entry(const Map& map, u32 slot, const Wanted& wanted) {
  u32& next = map.counts->next_entry;
  if (__atomic_load_n(&next, __ATOMIC_RELAXED) >= map.entry_count) return nullptr;
  const u32 number = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
  if (number >= map.entry_count) return nullptr;
  u64* const entry = entry_of(map, number);
  copy_words(entry + map.sums, wanted.key.words, wanted.used);
  __atomic_store_n(&map.slots[slot], u64{wanted.hash} << 32 | (shared::kSlotEntry + number), __ATOMIC_RELEASE);
  return entry;
}

// The slot once it is no longer claimed; or still claimed, by a writer that does not run now (or never will again).
UPROBE_IN_SECTION HistogramSlot wait_for(const HistogramSlot& slot) {
  constexpr u32 kLooks = 200;  // some microseconds; a claim is held for a tenth of one
  HistogramSlot word = __atomic_load_n(&slot, __ATOMIC_ACQUIRE);
  for (u32 i = 0; i < kLooks && static_cast<u32>(word) == shared::kSlotClaimed; ++i) {
    __builtin_ia32_pause();
    word = __atomic_load_n(&slot, __ATOMIC_ACQUIRE);
  }
  return word;
}

UPROBE_IN_SECTION u64* entry_if(const Map& map, HistogramSlot word, const Wanted& wanted) {
  const u32 state = static_cast<u32>(word);
  const bool is_ready = word >> 32 == wanted.hash && state >= shared::kSlotEntry;
  return is_ready && has_key(map, state - shared::kSlotEntry, wanted) ? entry_of(map, state - shared::kSlotEntry)
                                                                      : nullptr;
}

// Null: there is no room. Looks at each slot at most once, and waits at most once before each free one.
UPROBE_IN_SECTION u64* find_entry(const Map& map, const Key& key, u32 used) {
  const Wanted wanted{key, used, hash_of(key, used)};
  const u32 mask = map.slot_count - 1;
  const HistogramSlot claimed = u64{wanted.hash} << 32 | shared::kSlotClaimed;
  const HistogramSlot* other = nullptr;  // claimed by a writer that may be adding this key
  for (u32 tries = 0, at = wanted.hash & mask; tries <= mask; ++tries, at = (at + 1) & mask) {
    HistogramSlot& slot = map.slots[at];
    HistogramSlot word = __atomic_load_n(&slot, __ATOMIC_ACQUIRE);
    if (word == 0 && other != nullptr) {
      if (u64* const entry = entry_if(map, wait_for(*other), wanted)) return entry;
      other = nullptr;
    }
    if (word == 0 && __atomic_load_n(&map.counts->next_entry, __ATOMIC_RELAXED) >= map.entry_count) return nullptr;
    if (word == 0 && __atomic_compare_exchange_n(&slot, &word, claimed, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
      return make_entry(map, at, wanted);
    if (u64* const entry = entry_if(map, word, wanted)) return entry;
    if (word == claimed) other = &slot;
  }
  return nullptr;
}

// A name that has not been fetched yet is no key, and an unknown value is not added up.
UPROBE_IN_SECTION bool is_known(const RecordBuilder& builder, const Map& map, const Payload& payload) {
  if ((payload.record_flags & shared::kRecordNoEntry) != 0 && (map.head->flags & shared::kHistogramWantsEntry) != 0)
    return false;
  for (u32 i = 0; i < map.keys; ++i)
    if (static_cast<HistogramSource>(map.head->keys[i].source) == HistogramSource::text &&
        (payload.record_flags & shared::kRecordCommLater) != 0)
      return false;
  for (u32 i = 0; i + 1 < map.sums; ++i)
    if (is_unknown_task(builder, map.head->values[i])) return false;
  return true;
}

// A ring's scratch belongs to the writer of the ring. Null: there is none.
UPROBE_IN_SECTION Key* key_of(const RecordBuilder& builder) {
  const u64 at = builder.area->scratch_offset + u64{builder.index} * shared::kScratchBytes + shared::kScratchPayload;
  const bool fits = builder.area->scratch_offset != 0 && at % 8 == 0 && at + sizeof(Key) <= builder.area->data_offset;
  return fits ? at_offset<Key>(builder.area, at) : nullptr;
}

// Returns the number of values: 0 for a hit that is dropped, such as one of which it is unknown whether it `belongs`.
UPROBE_IN_SECTION u8 look_up(const RecordBuilder& builder, const Payload& payload, const Map& map, bool belongs,
                             Addend& addend) {
  Key* const key = belongs ? key_of(builder) : nullptr;
  u32 used = 0;
  const bool is_key = key != nullptr && is_known(builder, map, payload) && build_key(builder, payload, map, *key, used);
  addend.sums = is_key ? find_entry(map, *key, used) : nullptr;
  if (addend.sums == nullptr) return addend.sums = &map.counts->dropped, u8{0};
  for (u32 i = 0; i + 1 < map.sums; ++i) {
    const HistogramField field = map.head->values[i];
    addend.values[i] = number_of(field, payload, builder.cpu);
  }
  return static_cast<u8>(map.sums - 1);
}

}  // namespace

// Not inlined: only an event with a histogram needs the stack for it.
[[gnu::noinline]] UPROBE_IN_SECTION void find_sums(const RecordBuilder& builder, const Payload& payload) {
  AreaHeader* const area = builder.area;
  Addends& addends = *builder.addends;
  addends.found = true, addends.count = 0;
  const Triggers all = triggers_of(area, *builder.event);
  const bool is_missing = (payload.record_flags & shared::kRecordNoEntry) != 0;
  for (u32 i = 0; i < all.count && addends.count < shared::kMaxEventHistograms; ++i) {
    const Trigger& trigger = all.first[i];
    if (!is_histogram(trigger) || (is_missing && trigger.test_count != 0)) continue;
    const auto verdict = trigger.test_count == 0 ? shared::Verdict::pass
                                                 : verdict_of(builder, payload, trigger.first_test, trigger.test_count);
    Map map;
    if (verdict == shared::Verdict::drop || !find_map(area, trigger.target, map)) continue;
    addends.value_counts[addends.count] =
        look_up(builder, payload, map, verdict == shared::Verdict::pass, addends.list[addends.count]);
    ++addends.count;
  }
}

[[gnu::noinline]] void add_up(const Addends& addends) {
  for (u32 i = 0; i < addends.count; ++i) {
    const Addend& addend = addends.list[i];
    count(addend.sums[0]);
    for (u32 value = 0; value < addends.value_counts[i]; ++value)
      __atomic_fetch_add(&addend.sums[1 + value], addend.values[value], __ATOMIC_RELAXED);
  }
}

[[gnu::noinline]] void count_unseen(AreaHeader* area, const Event& event) {
  const Triggers all = triggers_of(area, event);
  for (u32 i = 0; i < all.count; ++i) {
    Map map;
    if (is_histogram(all.first[i]) && find_map(area, all.first[i].target, map)) count(map.counts->dropped);
  }
}

}  // namespace uprobe::agent
