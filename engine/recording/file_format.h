// SPDX-License-Identifier: MIT
// The file of a recording, as docs/recording.md describes it: a head, then blocks of entries. All numbers are little-endian.
//
//   file    [ FileHead | block | block | ... ]
//   block   [ BlockHead | entry | entry | ... ]   its sum is that of the entries: a block is whole, or it does not count
//   entry   [ EntryHead | bytes ]
//
// A block belongs to a lane, which is sorted by time: lane 0 has all that is not hits, and hits that the session has put in order
// itself; any other lane has hits of one ring, which the session has copied as they were, and the last one has the course of the
// session. Printing merges the lanes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace uprobe::recording {

inline constexpr std::array<std::uint8_t, 8> kMagic = {'U', 'P', 'R', 'E', 'C', '\r', '\n', '\0'};
// 3 has no packed hits, 2 no entries of the course either.
inline constexpr std::uint32_t kVersion = 4, kOldestVersion = 2;

struct FileHead {
  std::array<std::uint8_t, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t zero = 0;
  std::array<char, 16> tool{};  // its version, as text
};
static_assert(sizeof(FileHead) == 32);

inline constexpr std::uint32_t kBlockMark = 0x4b4c4255;  // "UBLK"
struct BlockHead {
  std::uint32_t mark = kBlockMark;
  std::uint32_t bytes = 0;  // of the entries
  std::uint64_t sum = 0;
  std::uint32_t lane = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(BlockHead) == 24);
inline constexpr std::uint32_t kMostLanes = 65536, kCourseLane = kMostLanes - 1;
// A block ends once it has this size; the last entry may be large.
inline constexpr std::uint32_t kBlockBytes = 32 * 1024, kMostBlockBytes = 16 * 1024 * 1024;

// What the elements of a field are together.
inline constexpr std::uint32_t kIsText = 1, kIsWide = 2;

// The descriptions of events stay in memory: bytes of one entry, and of all.
inline constexpr std::uint32_t kMostEventBytes = 128 * 1024, kMostDescribedBytes = 32 * 1024 * 1024;

enum class EntryKind : std::uint32_t {
  settings = 1,  // the first one
  event = 2,     // the next type: before its records
  hits = 3,
  symbols = 4,    // names of addresses in the hit that follows
  frames = 5,     // the stack of the hit that follows
  totals = 6,     // the last one: the session came to its end
  clocks = 7,     // what all clocks show at one moment; before the hits of that time
  process = 8,    // has come, runs another program, or is gone; in a lane of its own, as is the next one
  loss = 9,       // what an event has lost so far
  mappings = 10,  // what code a process has mapped
  packed = 11,    // hits in a lane of a ring, in fewer bytes
};
struct EntryHead {
  EntryKind kind;
  std::uint32_t bytes;  // that follow
};
static_assert(sizeof(EntryHead) == 8);

inline constexpr std::size_t kCommBytes = 16;
// Hits of one task under one name: this, then records as in a ring (shared::RecordHead, payload, padding, stack), whose times
// are nanoseconds of CLOCK_MONOTONIC. Packed: the records as in packing.h.
struct HitsHead {
  std::uint32_t tid, pid;
  std::uint32_t count;
  std::uint8_t comm_bytes;
  std::array<std::uint8_t, 3> zero;
  std::array<char, kCommBytes> comm;
};
static_assert(sizeof(HitsHead) == 32);

// Nanoseconds of all clocks, as trace::ClockReading has them; 0: not known.
struct ClocksEntry {
  std::array<std::uint64_t, 6> ns;
};
static_assert(sizeof(ClocksEntry) == 48);

// ProcessEntry, followed by its two texts (words.h); a number that is not known is kUnknown.
inline constexpr std::uint32_t kUnknown = 0xffffffff;
struct ProcessEntry {
  std::uint64_t ns;
  std::uint32_t kind;  // format::ProcessEvent::Kind
  std::uint32_t pid, parent, exit, signal;
  std::uint32_t zero;
};
static_assert(sizeof(ProcessEntry) == 32);
// Likewise, followed by the event's name.
struct LossEntry {
  std::uint64_t ns, hits, returns;
};
static_assert(sizeof(LossEntry) == 24);

// Likewise, followed by the mappings.
struct MappingsEntry {
  std::uint64_t ns;
  std::uint32_t pid;
  std::uint32_t flags;
};
static_assert(sizeof(MappingsEntry) == 16);
inline constexpr std::uint32_t kAllMappings = 1;  // of the process
// Followed by path and build id.
struct MappingHead {
  std::uint64_t begin, end, offset;
};
static_assert(sizeof(MappingHead) == 24);

// Settings::flags
inline constexpr std::uint32_t kEscapes = 1, kShortLines = 2, kHasHeader = 4, kKnowsSymbols = 8, kMarksChanges = 16;

// Eight sums of every eighth word, and eight of what these were after each word; then all of them are mixed, from the number of
// bytes and the lane on. Missing bytes of the last 64 are zero.
inline std::uint64_t sum_of(const std::uint8_t* bytes, std::size_t size, std::uint32_t lane = 0) {
  constexpr std::size_t kSums = 8, kGroup = kSums * sizeof(std::uint64_t);
  using Pair = std::uint64_t __attribute__((vector_size(16)));
  Pair first[kSums / 2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}}, second[kSums / 2] = {}, words[kSums / 2];
  const auto add = [&](const std::uint8_t* group, std::size_t used) {
    std::memcpy(words, group, used);
    for (std::size_t i = 0; i < kSums / 2; ++i) second[i] += first[i] += words[i];
  };
  std::size_t at = 0;
  for (; size - at >= kGroup; at += kGroup) add(bytes + at, kGroup);
  if (at < size) {
    std::memset(words, 0, sizeof words);
    add(bytes + at, size - at);
  }
  std::uint64_t all = size | std::uint64_t{lane} << 32;
  const auto mix = [&](std::uint64_t word) { all = std::rotl((all ^ word) * 0x9e3779b97f4a7c15, 29); };
  for (const Pair& pair : first) mix(pair[0]), mix(pair[1]);
  for (const Pair& pair : second) mix(pair[0]), mix(pair[1]);
  return all;
}

}  // namespace uprobe::recording
