// SPDX-License-Identifier: MIT
// The file of a recording, as docs/recording.md describes it: a head, then blocks of entries. All numbers are little-endian.
//
//   file    [ FileHead | block | block | ... ]
//   block   [ BlockHead | entry | entry | ... ]   its sum is that of the entries: a block is whole, or it does not count
//   entry   [ EntryHead | bytes ]
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace uprobe::recording {

inline constexpr std::array<std::uint8_t, 8> kMagic = {'U', 'P', 'R', 'E', 'C', '\r', '\n', '\0'};
inline constexpr std::uint32_t kVersion = 2;

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
};
static_assert(sizeof(BlockHead) == 16);
// A block ends once it has this size; the last entry may be large.
inline constexpr std::uint32_t kBlockBytes = 64 * 1024, kMostBlockBytes = 16 * 1024 * 1024;

// The descriptions of events stay in memory: bytes of one entry, and of all.
inline constexpr std::uint32_t kMostEventBytes = 128 * 1024, kMostDescribedBytes = 32 * 1024 * 1024;

enum class EntryKind : std::uint32_t {
  settings = 1,  // the first one
  event = 2,     // the next type: before its records
  hit = 3,
  symbols = 4,  // names of addresses in the hit that follows
  frames = 5,   // the stack of the hit that follows
  totals = 6,   // the last one: the session came to its end
  clocks = 7,   // what all clocks show at one moment; before the hits of that time
};
struct EntryHead {
  EntryKind kind;
  std::uint32_t bytes;  // that follow
};
static_assert(sizeof(EntryHead) == 8);

inline constexpr std::size_t kCommBytes = 16;
// A hit: this, its payload (ftrace's raw record), then its stack.
struct HitHead {
  std::uint64_t ns;
  std::uint32_t tid, pid;
  std::uint16_t cpu, type, flags;
  std::uint8_t comm_bytes;
  std::uint8_t zero;
  std::uint32_t payload_bytes, stack_bytes;
  std::array<char, kCommBytes> comm;
};
static_assert(sizeof(HitHead) == 48);

// Nanoseconds of all clocks, as trace::ClockReading has them; 0: not known.
struct ClocksEntry {
  std::array<std::uint64_t, 6> ns;
};
static_assert(sizeof(ClocksEntry) == 48);

// Settings::flags
inline constexpr std::uint32_t kEscapes = 1, kShortLines = 2, kHasHeader = 4, kKnowsSymbols = 8;

// Four sums of every fourth word, then of those four, from the number of bytes on. Missing bytes of the last 32 are zero.
inline std::uint64_t sum_of(const std::uint8_t* bytes, std::size_t size) {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;
  constexpr std::size_t kGroup = 32;
  const auto mix = [](std::uint64_t sum, std::uint64_t word) { return std::rotl((sum ^ word) * kFactor, 29); };
  std::uint64_t sums[4] = {1, 2, 3, 4}, words[4];
  for (std::size_t at = 0; at < size; at += kGroup) {
    if (size - at < kGroup) std::memset(words, 0, sizeof words);
    std::memcpy(words, bytes + at, size - at < kGroup ? size - at : kGroup);
    for (int i = 0; i < 4; ++i) sums[i] = mix(sums[i], words[i]);
  }
  std::uint64_t all = size;
  for (const std::uint64_t sum : sums) all = mix(all, sum);
  return all;
}

}  // namespace uprobe::recording
