// SPDX-License-Identifier: MIT
// The clock on made-up samples, and its sanity on the real ones.
#include "engine/trace/clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace uprobe::trace {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

TEST(Clock, IsExactAtItsSamplesAndStraightBetweenThem) {
  Clock clock({1000, 50'000}, {3000, 51'000});  // two ticks are a nanosecond
  EXPECT_EQ(clock.to_ns(1000), 50'000u);
  EXPECT_EQ(clock.to_ns(2000), 50'500u);
  EXPECT_EQ(clock.to_ns(3000), 51'000u);
  EXPECT_EQ(clock.to_ns(13'000), 56'000u);
  EXPECT_EQ(clock.ticks(500), 1000u);
}

TEST(Clock, ReachesBackBeforeItsFirstSample) {
  Clock clock({1'000'000, 50'000'000}, {3'000'000, 51'000'000});
  EXPECT_EQ(clock.to_ns(0), 49'500'000u);
}

TEST(Clock, SaturatesInsteadOfWrapping) {
  Clock clock({1000, kMost - 10}, {2000, kMost - 5});
  EXPECT_EQ(clock.to_ns(kMost), kMost);
  Clock young({1'000'000, 10}, {2'000'000, 1'000'010});
  EXPECT_EQ(young.to_ns(0), 0u);
}

TEST(Clock, InterpolatesWhatIsNotConvertedYet) {
  Clock clock({0, 0}, {kSecond, kSecond});
  clock.add_sample({2 * kSecond, 2 * kSecond + 2000});  // the second second was 2 us longer
  EXPECT_NEAR(static_cast<double>(clock.to_ns(kSecond + kSecond / 2)), 1.5 * kSecond + 1000, 1.0);
  EXPECT_NEAR(static_cast<double>(clock.to_ns(2 * kSecond)), 2.0 * kSecond + 2000, 1.0);
  EXPECT_NEAR(static_cast<double>(clock.to_ns(3 * kSecond)), 3.0 * kSecond + 4000, 2.0);
}

TEST(Clock, NeverChangesWhatHasBeenConverted) {
  Clock clock({0, 0}, {kSecond, kSecond});
  const std::uint64_t tsc = 2 * kSecond - 10;
  const std::uint64_t before = clock.to_ns(tsc);
  clock.add_sample({2 * kSecond, 2 * kSecond - 5000});  // the clock was slowed down: the guess was too late
  EXPECT_EQ(clock.to_ns(tsc), before);
  EXPECT_GE(clock.to_ns(tsc + 1), before);
  EXPECT_GE(clock.to_ns(2 * kSecond), before);
}

TEST(Clock, TakesAStepForwardButNotItsRate) {
  Clock clock({0, 0}, {kSecond, kSecond});
  clock.add_sample({2 * kSecond, 10 * kSecond});
  EXPECT_EQ(clock.to_ns(2 * kSecond), 10 * kSecond);
  EXPECT_NEAR(static_cast<double>(clock.to_ns(3 * kSecond)), 11.0 * kSecond, 2.0);
}

TEST(Clock, DropsSamplesThatGoBack) {
  Clock clock({0, 0}, {kSecond, kSecond});
  clock.add_sample({kSecond / 2, 5 * kSecond});
  clock.add_sample({2 * kSecond, kSecond / 2});
  EXPECT_EQ(clock.to_ns(kSecond), kSecond);
  EXPECT_NEAR(static_cast<double>(clock.to_ns(2 * kSecond)), 2.0 * kSecond, 1.0);
}

TEST(Clock, SurvivesSamplesThatDoNotDiffer) {
  Clock clock({5, 7}, {5, 7});
  EXPECT_EQ(clock.to_ns(5), 7u);
  EXPECT_GE(clock.to_ns(kMost), clock.to_ns(6));
}

// For any samples and any order of conversions, a later stamp never gets an earlier time.
TEST(Clock, IsMonotone) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    Clock clock({1000, 1000}, {1'000'000, 1'000'000 + random() % 1000});
    std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
    std::uint64_t tsc = 1'000'000, ns = 1'000'000;
    for (int i = 0; i < 100; ++i) {
      tsc += random() % 1'000'000;
      ns += random() % 1'000'000;
      clock.add_sample({tsc, ns});
      for (int k = 0; k < 5; ++k) {
        const std::uint64_t stamp = tsc - 500'000 + random() % 1'500'000;
        seen.emplace_back(stamp, clock.to_ns(stamp));
      }
    }
    std::sort(seen.begin(), seen.end());
    for (std::size_t i = 1; i < seen.size(); ++i) ASSERT_LE(seen[i - 1].second, seen[i].second) << "round " << round;
  }
}

TEST(Clock, CalibratesWhenItIsDue) {
  int asked = 0;
  std::uint64_t now = kSecond;
  Clock clock({0, 0}, {now, now}, [&] {
    ++asked;
    return ClockSample{now, now};
  });
  clock.keep(now);
  EXPECT_EQ(asked, 0);
  now += kSecond / 10;
  clock.keep(now);
  EXPECT_EQ(asked, 1);
  clock.keep(now);
  EXPECT_EQ(asked, 1);
  for (int i = 0; i < 10; ++i) clock.keep(now += kSecond);
  EXPECT_EQ(asked, 11);
  clock.keep(now + kSecond / 2);
  EXPECT_EQ(asked, 11);
}

TEST(Clock, TheRealOneLiesBetweenTwoReadingsOfTheSystemClock) {
  Clock clock = Clock::start();
  const ClockSample before = Clock::sample();
  const std::uint64_t tsc = Clock::now();
  const ClockSample after = Clock::sample();
  EXPECT_LT(before.tsc, tsc);
  EXPECT_LT(tsc, after.tsc);
  // Independent of speed: the error of a short calibration is microseconds, a wrong conversion is off by far more.
  EXPECT_GT(clock.to_ns(tsc) + 1'000'000, before.ns);
  EXPECT_LT(clock.to_ns(tsc), after.ns + 1'000'000);
}

}  // namespace
}  // namespace uprobe::trace
