// SPDX-License-Identifier: MIT
// What the two worlds have in common, part 10: histograms, which a `hist` trigger adds hits to.
//
//   table of Histograms;  HistogramCounts of each | for each: Slot[slot_count]  Entry[entry_count] | a scratch for each ring
//
// A histogram is a hash table that is only ever added to. An entry is the sums (the count of hits, then the values) and behind
// them the key; a slot says which entry a key has:
//
//   free (0) --cmpxchg--> claimed --the entry is taken, its key is written, one store--> ready
//
// Nobody waits long for a claimed slot: who looks for the same key, and finds it nowhere, looks a few microseconds and goes on to
// the next slot, so that a key may have two entries, which the reader adds up. A writer that ends in between (SIGKILL, a section
// of rseq that starts anew) leaves a claimed slot, which is room lost and nothing else. Sums change by lock add on ready entries
// alone.
//
// The table of Histograms is in the session's plan, which the tool alone writes; HistogramCounts, slots and entries are in its live
// file, which every traced process writes: the numbers there are bounded by the plan's before they lead anywhere.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u32 kMaxHistogramKeys = 3, kMaxHistogramValues = 2;  // besides the count of hits
inline constexpr u32 kMaxEventHistograms = 4;
inline constexpr u32 kMinHistogramBits = 7, kMaxHistogramBits = 17, kDefaultHistogramBits = 11;  // entries, log2
inline constexpr u32 kHistogramText = 256;   // bytes of a string in a key, a NUL at the end included
inline constexpr u32 kHistogramFrames = 16;  // of a stack in a key; 0 behind the last
inline constexpr u32 kMaxHistogramKey = kHistogramText + 8 * kHistogramFrames;

enum class HistogramSource : u8 {
  number,      // of `size` bytes in the payload; common_pid of another PID namespace: TaskNumber::key(), not grouped
  text,        // a string whose locator is in the payload; one that could not be read is "(fault)"
  characters,  // `size` bytes of the payload, up to a NUL
  cpu,
  stack,  // return addresses
  task_name,
};
inline constexpr u8 kHistogramSourceCount = 6;

enum class HistogramGroup : u8 { none, log2, buckets };

struct HistogramField {
  u8 source;     // HistogramSource
  u8 is_signed;  // number: it fills its word with its sign
  u8 group;      // HistogramGroup
  u8 reserved;
  u16 size;
  u16 key_offset;  // in the key, a multiple of 8
  u32 offset;      // in the payload
  u32 reserved2;
  u64 width;  // of buckets
};
static_assert(sizeof(HistogramField) == 24);

inline constexpr u32 kHistogramWantsEntry = 1;  // of Histogram::flags: it uses what was noted at the function's entry

struct alignas(64) Histogram {
  u32 key_count, value_count;
  u32 key_bytes;   // a multiple of 8
  u32 slot_count;  // a power of two, twice entry_count
  u32 entry_count;
  u32 flags;
  u32 slot_offset, entry_offset;  // from the start of the area; multiples of 8
  HistogramField keys[kMaxHistogramKeys];
  HistogramField values[kMaxHistogramValues];
  u64 reserved[5];
};
static_assert(sizeof(Histogram) == 192);

// Of writers.
struct alignas(64) HistogramCounts {
  u32 next_entry;
  u32 reserved0;
  u64 dropped;  // hits that found no room, or whose fields were not known
  u64 reserved1[6];
};
static_assert(sizeof(HistogramCounts) == 64);

// A slot: the key's hash << 32 | kSlotClaimed, or | kSlotEntry + the number of its entry.
using HistogramSlot = u64;
inline constexpr u32 kSlotClaimed = 1, kSlotEntry = 2;

constexpr u32 histogram_sums(u32 value_count) { return 1 + value_count; }
constexpr u32 histogram_entry_bytes(u32 key_bytes, u32 value_count) {
  return 8 * histogram_sums(value_count) + key_bytes;
}

// The scratch of a ring, for who writes it: a payload (a hit that finds the ring full still counts), then a key.
inline constexpr u32 kScratchPayload = (kMaxPayload + 63) / 64 * 64, kScratchBytes = kScratchPayload + kMaxHistogramKey;
static_assert(kScratchBytes % 64 == 0);

}  // namespace uprobe::shared
