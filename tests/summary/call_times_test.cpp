// SPDX-License-Identifier: MIT
// Rows of summaries, from histograms of latencies.
#include "engine/summary/call_times.h"

#include <gtest/gtest.h>

#include "engine/shared/histogram.h"
#include "engine/spec/parse.h"

namespace uprobe::summary {
namespace {

using summary::CallSums;
using u64 = std::uint64_t;

// Calls of one latency each: `count` of them take `each`, `self` of which are their own.
void add(CallSums& sums, u64 each, u64 count, u64 self) {
  CallSums::Sum& sum = sums.times[shared::log2_part(each, 5)];
  sum.count += count, sum.total += each * count, sum.self += self * count;
}

TEST(CallTimes, ABucketIsAThirtySecondOfItsValuesWide) {
  for (u64 value :
       {u64{0}, u64{1}, u64{63}, u64{64}, u64{65}, u64{127}, u64{128}, u64{1000}, u64{123456789}, ~u64{0}}) {
    const u64 low = shared::log2_part(value, 5), high = shared::log2_part_end(low, 5);
    EXPECT_LE(low, value);
    EXPECT_GE(high, value);
    EXPECT_EQ(shared::log2_part(high, 5), low);
    EXPECT_LE(high - low, low / 32) << value;
    if (high != ~u64{0}) {
      EXPECT_NE(shared::log2_part(high + 1, 5), low);
    }
  }
}

TEST(CallTimes, PercentilesAreThoseOfTheCalls) {
  CallSums copy;
  for (u64 i = 1; i <= 100; ++i) add(copy, i * 1000, 1, i * 500);
  const CallSummary row = summarize(copy, {.began = 100});
  EXPECT_EQ(row.calls, 100U);
  EXPECT_EQ(row.returns, 100U);
  EXPECT_EQ(row.abandoned, 0U);
  EXPECT_EQ(row.total_ns, 5'050'000U);
  EXPECT_EQ(row.self_ns, 2'525'000U);
  EXPECT_EQ(row.mean_ns, 50'500U);
  EXPECT_NEAR(static_cast<double>(row.p50_ns), 50'000, 50'000 * 0.02);
  EXPECT_NEAR(static_cast<double>(row.p90_ns), 90'000, 90'000 * 0.02);
  EXPECT_NEAR(static_cast<double>(row.p99_ns), 99'000, 99'000 * 0.02);
  EXPECT_NEAR(static_cast<double>(row.max_ns), 100'000, 100'000 * 0.02);
}

TEST(CallTimes, CallsThatDoNotReturnAreCounted) {
  CallSums copy;
  add(copy, 50, 7, 50);
  const CallSummary row = summarize(copy, {.began = 12, .unfollowed = 2});
  EXPECT_EQ(row.calls, 12U);
  EXPECT_EQ(row.returns, 7U);
  EXPECT_EQ(row.unfollowed, 2U);
  EXPECT_EQ(row.abandoned, 3U);
}

// Also those of a target that lies.
TEST(CallTimes, CountsThatContradictEachOtherStayInOrder) {
  CallSums copy;
  add(copy, 50, 7, 50);
  const CallSummary row = summarize(copy, {.began = 3, .unfollowed = 99});
  EXPECT_EQ(row.calls, 3U);
  EXPECT_EQ(row.returns, 7U) << "fork returns twice";
  EXPECT_EQ(row.abandoned + row.unfollowed, 0U);
}

TEST(CallTimes, AnUnknownSelfTimeIsNone) {
  CallSums copy;
  add(copy, 50, 7, 20);
  EXPECT_EQ(summarize(copy, {.began = 7, .self_unknown = 1}).self_ns, std::nullopt);
  const CallSummary row = summarize(copy, {.began = 9, .untimed = 2});
  EXPECT_EQ(row.self_ns, 140U) << "of those with a time";
  EXPECT_EQ(row.untimed, 2U);
  EXPECT_EQ(row.returns, 9U);
}

TEST(CallTimes, NoCallHasNoTimes) {
  const CallSummary row = summarize({}, {});
  EXPECT_EQ(row.calls + row.mean_ns + row.max_ns, 0U);
  EXPECT_EQ(row.self_ns, 0U);
}

TEST(CallTimes, ADefinitionBecomesThatOfTheReturn) {
  const auto parsed = spec::parse_definition("p:mine/e /bin/zsh:zfree %di n=%si:u32", {.file_check = {}});
  ASSERT_TRUE(parsed);
  const spec::ProbeSpec sums = sums_of(*parsed);
  EXPECT_TRUE(sums.is_return && sums.sums_calls);
  EXPECT_EQ(sums.group, "mine_calls");
  EXPECT_EQ(sums.event, "e");
  ASSERT_EQ(sums.arguments.size(), 2U);
  EXPECT_EQ(sums.arguments[0].name, "latency");
  EXPECT_EQ(sums.arguments[1].name, "self");
}

}  // namespace
}  // namespace uprobe::summary
