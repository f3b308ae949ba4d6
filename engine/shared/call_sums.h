// SPDX-License-Identifier: MIT
// Sums of calls: how often functions were called, and how long their calls took. For each function (an event that sums up calls)
// and each CPU there is a *row*; the last row of each function is that of threads without rseq.
//
//   SumsHead | SumRow[sum_banks][sum_rows][sum_count] | chunks: SumCell[kSumParts][sum_chunks] | SumBank[sum_banks]
//
// A *bank* is the rows of one program in one process, or, with sum_banks = 1, of all processes. A process takes the next bank at its
// first call, says in SumBank who it is, and keeps the number in its mailbox, which a child of fork finds empty. Bank 0 is that of
// all processes that found none left.
//
//   latency --sum_group--> SumRow::chunks[group] --> chunk --sum_part--> SumCell: count of calls, their total, their self times
//
// A chunk has the buckets between two powers of two. It comes at the first call that needs it (cmpxchg of SumRow::chunks[group]
// from 0), and stays. A chunk that two threads add at once is lost, which only costs room.
//
// A cell in a CPU's row changes inside an rseq section, all of it by the section's last instruction, the store of `count`: the
// sums in force are those at `count & 1`, and the section has written the others. In the last row cells change by lock add, and
// the sums at 0 are in force.
//
// All of this is in the live file, which every process of the domain writes: who reads a number bounds it by the plan's.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u32 kSumBits = 5;  // a bucket is at most 1/32 of its values wide
inline constexpr u32 kSumParts = 1u << kSumBits;
inline constexpr u32 kSumGroups = 64 - kSumBits + 1;

struct SumCell {
  u64 count;
  u64 total[2], self[2];  // nanoseconds
};
static_assert(sizeof(SumCell) == 40);

struct alignas(64) SumRow {
  SumCell entries;         // calls that began; the sums are not used, but for those of SumLoss
  u32 chunks[kSumGroups];  // of each group: the number of its chunk + 1; 0: none yet
};
static_assert(sizeof(SumRow) == 320);

// What is known of the calls of one process besides their times, where there are several banks: a word of `entries` in the bank's
// last row, changed by lock add.
enum class SumLoss : u32 { untimed, self_unknown, unfollowed };
template <class Cell>
constexpr auto& loss_of(Cell& entries, SumLoss loss) {
  return loss == SumLoss::untimed        ? entries.total[0]
         : loss == SumLoss::self_unknown ? entries.total[1]
                                         : entries.self[0];
}

struct alignas(64) SumsHead {
  u32 next_chunk;
  u32 next_bank;  // the number of banks that were taken
  u32 reserved[14];
};
static_assert(sizeof(SumsHead) == 64);

// Who a bank belongs to. `task` is written last; 0: the process is about to say it, or was killed before it could.
struct SumBank {
  u64 task;       // TaskNumber::key() of the process, or of one of its threads
  u32 is_thread;  // 1: of a thread, since a seccomp filter may forbid to ask
  u32 reserved;
  u8 name[16];  // of the task; empty: not known, or the name of another thread
};
static_assert(sizeof(SumBank) == 32);
inline constexpr u32 kMostSumBanks = 1024;
inline constexpr u64 kMostBankRowBytes = 32u << 20;

inline constexpr u32 kSumChunkBytes = kSumParts * sizeof(SumCell);
// Of all functions together in a live file.
inline constexpr u64 kMostSumRowBytes = 64u << 20, kMostSumChunkBytes = 64u << 20;

constexpr u32 sum_group(u64 latency) {
  return latency < kSumParts ? 0 : 64 - kSumBits - static_cast<u32>(__builtin_clzll(latency));
}
constexpr u32 sum_part(u64 latency, u32 group) {
  return static_cast<u32>(latency >> (group == 0 ? 0 : group - 1)) & (kSumParts - 1);
}
// The lowest latency of a bucket.
constexpr u64 sum_bucket(u32 group, u32 part) { return group == 0 ? part : u64{kSumParts + part} << (group - 1); }

}  // namespace uprobe::shared
