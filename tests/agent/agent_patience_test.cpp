// SPDX-License-Identifier: MIT
// A hit that waits for room: while the tool's heartbeat moves, and not longer than it takes to see that it does not.
#include <gtest/gtest.h>

#include <thread>

#include "preload/ring.h"
#include "tests/agent/recording.h"

namespace uprobe::test {
namespace {

using agent::Wait;

class Patience : public testing::Test {
 protected:
  Patience() : session_({shared::Insn{shared::Op::end, 0, 0, 0, 0}}, 16, 0, 1, 8192) {
    install_agent_handlers();
    block_ = &empty_block();
    header().patience = ~u64{0} >> 1;
    // A tick is a second: the heartbeat is still as soon as it is seen twice in one wait.
    header().tick_rate = u64{1'000'000'000} << 32;
    header().tool_heartbeat = 7;
    header().tool_life = 1;
  }
  agent::AreaHeader& header() { return *session_.header(); }
  bool waits(Wait& wait) { return agent::has_patience(*block_, header(), wait); }

  OneEvent session_;
  shared::ProcessBlock* block_ = nullptr;
};

TEST_F(Patience, LastsWhileTheHeartbeatMoves) {
  Wait wait;
  for (u32 beat = 1; beat < 100; ++beat) {
    header().tool_heartbeat = beat;
    EXPECT_TRUE(waits(wait));
  }
}

TEST_F(Patience, EndsWhereTheHeartbeatIsStill) {
  Wait wait;
  EXPECT_TRUE(waits(wait));
  EXPECT_FALSE(waits(wait));
  Wait next;
  EXPECT_FALSE(waits(next)) << "the hits after it do not wait at all";
  header().tool_heartbeat = 8;
  EXPECT_TRUE(waits(next)) << "until the tool goes on";
}

// Program and tool may have been stopped together in between.
TEST_F(Patience, WhatAnEarlierHitHasSeenSaysNothing) {
  Wait before, after;
  EXPECT_TRUE(waits(before));
  EXPECT_TRUE(waits(after));
}

TEST_F(Patience, AStillHeartbeatIsThatOfItsSession) {
  Wait wait;
  EXPECT_TRUE(waits(wait));
  EXPECT_FALSE(waits(wait));
  header().name ^= 2;
  Wait next;
  EXPECT_TRUE(waits(next));
}

TEST_F(Patience, NoHitWaitsForADeadTool) {
  Wait wait;
  header().tool_life = shared::kLifeEnded;
  EXPECT_FALSE(waits(wait));
  header().tool_life = 1, header().tool_gone = 1;
  EXPECT_FALSE(waits(wait));
}

TEST_F(Patience, EndsInTime) {
  Wait wait;
  header().patience = 1;
  EXPECT_TRUE(waits(wait));
  EXPECT_FALSE(waits(wait));
  header().patience = 0;
  Wait none;
  EXPECT_FALSE(waits(none));
}

TEST_F(Patience, AHitWaitsForARingThatAnotherThreadHasClaimed) {
  session_.area().ring(0).owner = 1;
  std::thread other([this] {
    for (u32 beat = 8; beat < 1000; ++beat) {
      __atomic_store_n(&header().tool_heartbeat, beat, __ATOMIC_RELEASE);
      std::this_thread::yield();
    }
    __atomic_store_n(&session_.area().ring(0).owner, 0, __ATOMIC_RELEASE);
  });
  header().tick_rate = u64{1} << 32;  // a tick is a nanosecond
  session_.hit({}, true);
  other.join();
  EXPECT_EQ(session_.records(0), 1U);
  EXPECT_EQ(session_.counts().lost_busy, 0U);
}

TEST_F(Patience, AHitThatDoesNotWaitForARingIsCounted) {
  session_.area().ring(0).owner = 1;
  header().patience = 0;
  session_.hit({}, true);
  EXPECT_EQ(session_.records(0), 0U);
  EXPECT_EQ(session_.counts().lost_busy, 1U);
}

}  // namespace
}  // namespace uprobe::test
