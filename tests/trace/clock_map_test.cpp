// SPDX-License-Identifier: MIT
#include "engine/trace/clock_map.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <thread>

#include "engine/trace/clocks.h"

namespace uprobe::trace {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

ClockReading reading(ClockKind kind, std::uint64_t mono, std::uint64_t other) {
  ClockReading made;
  made.ns[static_cast<std::size_t>(ClockKind::mono)] = mono;
  made.ns[static_cast<std::size_t>(kind)] = other;
  return made;
}

TEST(ClockMap, MonoIsItself) {
  ClockMap map(ClockKind::mono);
  EXPECT_TRUE(map.is_known());
  map.add(reading(ClockKind::wall, 5, 7));
  EXPECT_EQ(map.convert(12), 12u);
}

TEST(ClockMap, AClockThatWasNeverReadIsNotKnown) {
  ClockMap map(ClockKind::global);
  map.add(reading(ClockKind::wall, 5, 7));
  EXPECT_FALSE(map.is_known());
  map.add(reading(ClockKind::global, 5, 7));
  EXPECT_TRUE(map.is_known());
}

TEST(ClockMap, AStepIsTakenOverFromTheReadingThatShowsIt) {
  ClockMap map(ClockKind::wall);
  map.add(reading(ClockKind::wall, 100 * kSecondNs, 1100 * kSecondNs));
  map.add(reading(ClockKind::wall, 101 * kSecondNs, 1101 * kSecondNs + 500));  // noise
  map.add(reading(ClockKind::wall, 102 * kSecondNs, 1000 * kSecondNs));        // set back
  EXPECT_EQ(map.convert(90 * kSecondNs), 1090 * kSecondNs);
  EXPECT_EQ(map.convert(101 * kSecondNs), 1101 * kSecondNs);
  EXPECT_EQ(map.convert(103 * kSecondNs), 1001 * kSecondNs);
}

TEST(ClockMap, TimesBeforeTheZeroOfAClockAreZero) {
  ClockMap map(ClockKind::tai);
  map.add(reading(ClockKind::tai, 100 * kSecondNs, 10 * kSecondNs));
  EXPECT_EQ(map.convert(95 * kSecondNs), 5 * kSecondNs);
  EXPECT_EQ(map.convert(80 * kSecondNs), 0u);
}

TEST(ClockMap, ARateIsMeasuredAndTimesDoNotGoBack) {
  ClockMap map(ClockKind::mono_raw);
  std::uint64_t last = 0;
  for (std::uint64_t second = 1; second < 50; ++second) {
    const std::uint64_t mono = second * kSecondNs;
    map.add(reading(ClockKind::mono_raw, mono, 7 * kSecondNs + mono + second * 20'000));  // 20 millionths faster
    for (std::uint64_t at = mono - kSecondNs / 2; at < mono + kSecondNs / 2; at += kSecondNs / 10) {
      const std::uint64_t shown = map.convert(at);
      EXPECT_GE(shown, last);
      last = shown;
      if (second < 3) continue;
      EXPECT_NEAR(static_cast<double>(shown), 7e9 + static_cast<double>(at) * 1.00002, 1000.0);
    }
  }
}

TEST(Clocks, NamesAndReadings) {
  EXPECT_EQ(clock_names(), "mono, mono_raw, boot, tai, global, wall");
  EXPECT_EQ(clock_called("boot"), ClockKind::boot);
  EXPECT_FALSE(clock_called("local"));
  const ClockReading read = ClockReader(false).read();
  EXPECT_EQ(read.at(ClockKind::global), 0u);
  EXPECT_GE(read.at(ClockKind::boot) + 1'000'000, read.at(ClockKind::mono));
  EXPECT_GT(read.at(ClockKind::wall), read.at(ClockKind::boot));
}

TEST(Clocks, TheReaderGoesFromThreadToThread) {
  ClockReader reader(true);
  const ClockReading first = reader.read();
  if (first.at(ClockKind::global) == 0) return;  // the kernel does not tell it
  ClockReading second;
  std::thread([&] { second = reader.read(); }).join();
  EXPECT_GT(second.at(ClockKind::global), first.at(ClockKind::global));
}

}  // namespace
}  // namespace uprobe::trace
