// SPDX-License-Identifier: MIT
// The order of requests, by times that the test gives.
#include <gtest/gtest.h>

#include "engine/service/turns.h"

namespace uprobe::control {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostParts = 16;

class TurnsTest : public testing::Test {
 protected:
  // A request whose thread answers no command.
  void be_silent(std::size_t part) {
    const auto patience = turns.patience(part, now);
    turns.charge(part, now += patience, patience, patience);
  }
  Turns turns;
  Turns::Clock::time_point now{100h};
};

TEST_F(TurnsTest, ShortRequestsCostNothing) {
  for (int i = 0; i < 1000; ++i) turns.charge(1, now += 1ms, 10ms, 0ms);
  EXPECT_FALSE(turns.is_behind(1, now));
  EXPECT_EQ(turns.patience(1, now), 2s);
}

TEST_F(TurnsTest, ALongRequestPutsItsPartBehindForAWhile) {
  turns.charge(1, now, 100ms, 0ms);
  EXPECT_TRUE(turns.is_behind(1, now));
  EXPECT_FALSE(turns.is_behind(0, now));
  EXPECT_EQ(turns.patience(1, now), 2s) << "its thread has answered";
  EXPECT_FALSE(turns.is_behind(1, now + 2s));
}

TEST_F(TurnsTest, TheDebtIsBounded) {
  for (int i = 0; i < 1000; ++i) turns.charge(1, now, 10s, 0ms);
  EXPECT_FALSE(turns.is_behind(1, now + 60s));
}

TEST_F(TurnsTest, ASilentPartIsWaitedForLess) {
  be_silent(1);
  EXPECT_TRUE(turns.is_behind(1, now));
  EXPECT_LE(turns.patience(1, now), 100ms);
  EXPECT_EQ(turns.patience(0, now), 2s) << "another part is not blamed";
  EXPECT_EQ(turns.patience(1, now + 60s), 2s);
}

// A waiting thread gives up after ten seconds.
TEST_F(TurnsTest, AllOthersTogetherKeepAPartWaitingForLessThanItsDeadline) {
  const auto begun = now;
  for (std::size_t part = 1; part < kMostParts; ++part) be_silent(part);
  EXPECT_LT(now - begun, 9s);
  for (std::size_t part = 1; part < kMostParts; ++part) EXPECT_LE(turns.patience(part, now), 100ms);
  EXPECT_GE(turns.patience(0, now), 100ms);
  EXPECT_FALSE(turns.is_behind(0, now));
}

}  // namespace
}  // namespace uprobe::control
