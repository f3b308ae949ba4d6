// SPDX-License-Identifier: MIT
// The sums of calls as the tool reads them, from memory in which anything may stand.
#include "engine/summary/call_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "engine/shared/histogram.h"

namespace uprobe::test {
namespace {

using shared::SumCell;
using shared::SumRow;
using summary::CallSums;
using u64 = std::uint64_t;

// A function with a row for a CPU and one without, and two chunks.
struct Memory {
  std::vector<SumRow> rows = std::vector<SumRow>(2);
  std::vector<SumCell> cells = std::vector<SumCell>(2UL * shared::kSumParts);

  SumCell& cell(std::uint32_t chunk, std::uint32_t part) { return cells[chunk * shared::kSumParts + part]; }
  CallSums read() const {
    CallSums sums;
    summary::add_call_sums(
        {.first = rows.data(), .row_count = 2, .stride = 1, .chunks = cells.data(), .chunk_count = 2}, sums);
    return sums;
  }
};

TEST(CallSums, EachLatencyHasOneBucket) {
  for (const u64 value : {u64{0}, u64{1}, u64{31}, u64{32}, u64{63}, u64{64}, u64{65}, u64{127}, u64{1000},
                          u64{123456789}, u64{1} << 63, ~u64{0}}) {
    const std::uint32_t group = shared::sum_group(value), part = shared::sum_part(value, group);
    ASSERT_LT(group, shared::kSumGroups) << value;
    ASSERT_LT(part, shared::kSumParts) << value;
    EXPECT_EQ(shared::sum_bucket(group, part), shared::log2_part(value, shared::kSumBits)) << value;
  }
}

TEST(CallSums, TheSumsOfTheCountAreInForce) {
  Memory memory;
  memory.rows[0].entries.count = 7;
  memory.rows[0].chunks[2] = 1, memory.rows[1].chunks[2] = 2;
  memory.cell(0, 3) = {.count = 3, .total = {111, 300}, .self = {222, 200}};
  memory.cell(0, 4) = {.count = 2, .total = {50, 999}, .self = {40, 999}};
  memory.cell(1, 3) = {.count = 1, .total = {70, 999}, .self = {60, 999}};  // without a CPU the first ones always are
  const CallSums sums = memory.read();
  EXPECT_EQ(sums.began, 7U);
  ASSERT_EQ(sums.times.size(), 2U);
  const CallSums::Sum& both = sums.times.at(shared::sum_bucket(2, 3));
  EXPECT_EQ(both.count, 4U);
  EXPECT_EQ(both.total, 370U);
  EXPECT_EQ(both.self, 260U);
  EXPECT_EQ(sums.times.at(shared::sum_bucket(2, 4)).total, 50U);
  EXPECT_EQ(sums.timed(), 6U);
}

TEST(CallSums, WhatWasThereBeforeIsTakenOff) {
  CallSums before, now;
  before.began = 3, before.times[8] = {.count = 2, .total = 16, .self = 10};
  now.began = 7, now.times[8] = {.count = 2, .total = 16, .self = 10};
  now.times[64] = {.count = 4, .total = 260, .self = 250};
  CallSums both = before;
  both.add(now);
  EXPECT_EQ(both.began, 10U);
  EXPECT_EQ(both.timed(), 8U);
  now.take_off(before);
  EXPECT_EQ(now.began, 4U);
  EXPECT_EQ(now.times.size(), 1U) << "the shortest latency is that of later calls";
  before.take_off(both);
  EXPECT_EQ(before.began + before.timed(), 0U) << "of a program that lies";
}

TEST(CallSums, AChunkThatIsNotThereIsNotRead) {
  Memory memory;
  memory.cell(0, 0).count = 5;
  for (const std::uint32_t chunk : {0U, 3U, 1U << 31, ~0U}) {
    std::ranges::fill(memory.rows[0].chunks, chunk);
    EXPECT_TRUE(memory.read().times.empty()) << chunk;
  }
}

TEST(CallSums, NoMemoryMakesMoreEntriesThanBuckets) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    Memory memory;
    for (SumRow& row : memory.rows)
      for (std::uint32_t& chunk : row.chunks) chunk = static_cast<std::uint32_t>(random() % 4);
    for (SumCell& cell : memory.cells) cell = {.count = random(), .total = {random(), 1}, .self = {2, random()}};
    EXPECT_LE(memory.read().times.size(), std::size_t{shared::kSumGroups} * shared::kSumParts);
  }
}

program::EventProgram summing() {
  program::EventProgram made;
  made.layout.fixed_bytes = 24, made.layout.is_return = true;
  made.insns = {{.op = shared::Op::end, .size = 0, .count = 0, .offset = 0, .immediate = 0}};
  made.sums_calls = true;
  return made;
}

TEST(CallSums, TheAreaHasRoomForThemInBounds) {
  const program::EventProgram sums = summing();
  program::EventProgram other = summing();
  other.sums_calls = false;
  const trace::AreaSpec few{.events = {&sums, &other, &sums}, .ring_bytes = 8192, .ring_count = 3, .cpu_ring_count = 2};
  auto area = trace::Area::create_private(few);
  ASSERT_TRUE(area);
  EXPECT_EQ(area->sum_of(0), 0U);
  EXPECT_EQ(area->sum_of(1), std::nullopt);
  EXPECT_EQ(area->sum_of(2), 1U);
  const shared::AreaHeader& header = area->header();
  EXPECT_EQ(header.sum_count, 2U);
  EXPECT_EQ(header.sum_rows, 3U);
  EXPECT_GE(header.sum_chunks, header.sum_rows * shared::kSumGroups);
  EXPECT_LE(header.sum_chunk_offset + u64{header.sum_chunks} * shared::kSumChunkBytes, header.data_offset);
  const trace::AreaLayout many({.events = std::vector<const program::EventProgram*>(60'000, &sums),
                                .ring_bytes = 8192,
                                .ring_count = 256,
                                .cpu_ring_count = 200});
  EXPECT_GE(many.sum_rows, 1U);
  EXPECT_LE(many.data - many.sums, shared::kMostSumRowBytes + shared::kMostSumChunkBytes + 4096);
}

TEST(CallSums, EachProcessHasARowInBounds) {
  const program::EventProgram sums = summing();
  for (const std::size_t events : {1UL, 10UL, 300UL, 2600UL, 60'000UL})
    for (const std::uint32_t cpus : {1U, 8U, 200U}) {
      const trace::AreaLayout layout({.events = std::vector<const program::EventProgram*>(events, &sums),
                                      .ring_bytes = 8192,
                                      .ring_count = cpus + 4,
                                      .cpu_ring_count = cpus,
                                      .sums_by_process = true});
      EXPECT_GE(layout.sum_rows, 1U);
      EXPECT_GE(layout.bank_count, events > 10'000 ? 2U : events > 2000 ? 30U : 200U);
      EXPECT_LE(layout.bank_count, shared::kMostSumBanks);
      EXPECT_GE(layout.chunk_count, layout.bank_count);
      EXPECT_LE(layout.data - layout.sums, shared::kMostSumRowBytes + shared::kMostSumChunkBytes + (1U << 16));
    }
}

TEST(CallSums, AnAreaWithoutSummariesHasNone) {
  program::EventProgram other = summing();
  other.sums_calls = false;
  auto area = trace::Area::create_private({.events = {&other}, .ring_bytes = 8192, .ring_count = 1});
  ASSERT_TRUE(area);
  EXPECT_FALSE(area->has_sums());
  CallSums sums;
  summary::add_call_sums(*area, 0, sums);
  EXPECT_EQ(sums.began + sums.timed(), 0U);
}

}  // namespace
}  // namespace uprobe::test
