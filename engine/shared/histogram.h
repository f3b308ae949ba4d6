// SPDX-License-Identifier: MIT
// Histograms, to which a `hist` trigger adds hits.
//
//   table of Histograms;  HistogramCounts of each | for each: Slot[slot_count]  Entry[entry_count] | a scratch for each ring
//
// A histogram is a hash table from which no key is ever removed. An entry holds the sums (the count of hits, then the values)
// and after them the key; a slot names the entry of a key:
//
//   free (0) --cmpxchg--> claimed --the entry is taken, its key is written, one store--> ready
//
// A writer does not wait long for a claimed slot: if it looks for the same key and finds no other slot with it, it tries for a
// few microseconds and takes the next slot. A key may then have two entries, which the reader adds up. A writer that ends
// before `ready` (SIGKILL, an rseq section that restarts) leaves a claimed slot, which only costs room. Sums change by lock
// add, and only in ready entries.
//
// The table of Histograms is in the session's plan, which only the tool writes; HistogramCounts, slots and entries are in the
// live file, which every process of the domain writes: readers bound their numbers by those of the plan.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u32 kMaxHistogramKeys = 3, kMaxHistogramValues = 2;  // in addition to the count of hits
inline constexpr u32 kMaxEventHistograms = 4;
inline constexpr u32 kMinHistogramBits = 7, kMaxHistogramBits = 17, kDefaultHistogramBits = 11;  // entries, log2
inline constexpr u32 kHistogramText = 256;    // bytes of a string in a key, a NUL at the end included
inline constexpr u32 kHistogramFrames = 128;  // of a stack in a key; zeroes after the last
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

enum class HistogramGroup : u8 {
  none,
  log2,
  buckets,
  log2_parts,  // 2^width buckets between two powers of two: log2_part()
};

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

inline constexpr u32 kHistogramWantsEntry = 1;  // of Histogram::flags: it uses the entry record

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

// In the live file: written by agents.
struct alignas(64) HistogramCounts {
  u32 next_entry;
  u32 reserved0;
  u64 dropped;  // hits for which there was no room, or whose fields were not known
  u64 reserved1[6];
};
static_assert(sizeof(HistogramCounts) == 64);

// A slot: the key's hash << 32 | kSlotClaimed, or | kSlotEntry + the number of its entry.
using HistogramSlot = u64;
inline constexpr u32 kSlotClaimed = 1, kSlotEntry = 2;

// The lowest value of the bucket, whose width is at most the 2^bits-th part of its values. Values below 2^(bits + 1) are alone.
constexpr u64 log2_part(u64 value, u64 bits) {
  const u64 used = value == 0 ? 0 : 64 - static_cast<u64>(__builtin_clzll(value));
  const u64 low = used > bits + 1 ? used - bits - 1 : 0;
  return low > 63 ? 0 : value >> low << low;
}
// The highest value of the bucket that `value` is in.
constexpr u64 log2_part_end(u64 value, u64 bits) {
  const u64 used = value == 0 ? 0 : 64 - static_cast<u64>(__builtin_clzll(value));
  const u64 low = used > bits + 1 ? used - bits - 1 : 0;
  return low > 63 ? value : value | ((u64{1} << low) - 1);
}
inline constexpr u64 kMaxLog2Parts = 8;  // bits

constexpr u32 histogram_sums(u32 value_count) { return 1 + value_count; }
constexpr u32 histogram_entry_bytes(u32 key_bytes, u32 value_count) {
  return 8 * histogram_sums(value_count) + key_bytes;
}

// A ring's writer has a scratch: a payload (a hit that finds the ring full still counts), then a key.
inline constexpr u32 kScratchPayload = (kMaxPayload + 63) / 64 * 64, kScratchBytes = kScratchPayload + kMaxHistogramKey;
static_assert(kScratchBytes % 64 == 0);

}  // namespace uprobe::shared
