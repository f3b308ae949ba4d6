// SPDX-License-Identifier: MIT
// Calls that are counted and timed in the target: the agent's functions, called by hand, and what the tool reads.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "engine/summary/call_sums.h"
#include "preload/ring.h"
#include "tests/agent/recording.h"

namespace uprobe::test {
namespace {

using agent::EntryRecord;
using shared::Op;
using shared::Reg;
using shared::Registers;
using summary::CallSums;

class Session {
 public:
  explicit Session(u32 cpu_rings) {
    agent::learn_rseq(empty_block());
    program_.layout.is_return = true;
    program_.layout.fixed_bytes = 24;
    program_.insns = {{Op::begin, 0, 0, 0, 0}, {Op::load_self, 0, 0, 0, 0}, {Op::end, 0, 0, 0, 0}};
    program_.noted.fixed_bytes = 16;
    program_.note = {{Op::end, 0, 0, 0, 0}};
    program_.sums_calls = true;
    const trace::AreaSpec spec{
        .events = {&program_, &program_}, .ring_bytes = 8192, .ring_count = cpu_rings + 1, .cpu_ring_count = cpu_rings};
    area_.emplace(trace::Area::create_private(spec).take());
    area_->header().tick_rate = u64{1} << 31;  // half a nanosecond
    area_->set_state(shared::SessionState::recording);
  }
  agent::AreaHeader* header() { return static_cast<agent::AreaHeader*>(area_->base()); }
  trace::Area& area() { return *area_; }
  CallSums sums(u32 event = 0) const {
    CallSums all;
    summary::add_call_sums(*area_, event, all);
    return all;
  }

 private:
  program::EventProgram program_;
  std::optional<trace::Area> area_;
};

struct Call {
  u64* slot;
  u32 event = 0;
  u32 tid = 1;

  Registers registers() const {
    Registers all{};
    all[Reg::sp] = word_of(slot);
    return all;
  }
  void begin(Session& session) const {
    shared::Point point{};
    point.address = 0x401000;
    Registers all = registers();
    agent::note_entry({agent::uprobe_block, &point, &all, tid, true, false}, session.header(), event);
  }
  EntryRecord end(Session& session) const {
    const shared::Point point{};
    Registers all = registers();
    all[Reg::ip] = *slot;
    EntryRecord noted{};
    agent::Hit hit{agent::uprobe_block, &point, &all, tid, true, false, false, 0x401000};
    hit.noted = &noted;
    agent::take_entry(hit, session.header(), event, word_of(slot));
    return noted;
  }
};

u64 total(const CallSums& sums) {
  u64 all = 0;
  for (const auto& [latency, sum] : sums.times) all += sum.total;
  return all;
}

u64 self(const CallSums& sums) {
  u64 all = 0;
  for (const auto& [latency, sum] : sums.times) all += sum.self;
  return all;
}

// By the rows of CPUs, and by that of threads without rseq.
class CallsIn : public testing::TestWithParam<u32> {};

TEST_P(CallsIn, AreCountedAndTimed) {
  Session session(GetParam());
  u64 stack[1] = {0x1234}, nanoseconds = 0;
  for (int i = 0; i < 1000; ++i) {
    Call{stack}.begin(session);
    const EntryRecord noted = Call{stack}.end(session);
    ASSERT_TRUE(noted.known && noted.self_known);
    nanoseconds += noted.nanoseconds;
  }
  const CallSums sums = session.sums();
  EXPECT_EQ(sums.began, 1000U);
  EXPECT_EQ(sums.timed(), 1000U);
  EXPECT_EQ(total(sums), nanoseconds);
  EXPECT_EQ(self(sums), nanoseconds);
  EXPECT_EQ(session.area().counts(0).untimed, 0U);
  EXPECT_EQ(session.sums(1).began, 0U);
}

TEST_P(CallsIn, OneAnotherHaveTheirOwnTimes) {
  Session session(GetParam());
  u64 stack[2] = {0x1234, 0x5678};
  const Call outer{stack, 0, 7}, inner{stack + 1, 1, 7};
  outer.begin(session);
  for (int i = 0; i < 3; ++i) inner.begin(session), inner.end(session);
  outer.end(session);
  EXPECT_EQ(self(session.sums(0)) + total(session.sums(1)), total(session.sums(0)));
  EXPECT_EQ(session.area().counts(0).self_unknown, 0U);
}

TEST_P(CallsIn, AReturnWithoutItsEntryIsUntimed) {
  Session session(GetParam());
  u64 stack[1] = {0x1234};
  const Call call{stack};
  call.begin(session);
  stack[0] = 0x1235;
  EXPECT_FALSE(call.end(session).known) << "it returns elsewhere";
  EXPECT_FALSE(call.end(session).known);
  EXPECT_EQ(session.sums().timed(), 0U);
  EXPECT_EQ(session.area().counts(0).untimed, 2U);
}

TEST_P(CallsIn, ThreadsAreAllCounted) {
  Session session(GetParam());
  constexpr u32 kThreads = 4, kCalls = 20'000;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (u32 i = 0; i < kThreads; ++i)
    threads.emplace_back([&session, i] {
      u64 stack[1] = {0x1234};
      const Call call{stack, 0, 100 + i};
      for (u32 n = 0; n < kCalls; ++n) call.begin(session), call.end(session);
    });
  for (std::thread& thread : threads) thread.join();
  const CallSums sums = session.sums();
  EXPECT_EQ(sums.began, kThreads * kCalls);
  EXPECT_EQ(sums.timed() + session.area().counts(0).untimed, kThreads * kCalls);
}

// Whatever another process of the domain writes there.
TEST_P(CallsIn, RowsThatLieHurtNoOneElse) {
  Session session(GetParam());
  shared::AreaHeader& header = session.area().header();
  auto* bytes = static_cast<u8*>(session.area().base());
  auto* rows = reinterpret_cast<shared::SumRow*>(bytes + header.sum_offset + sizeof(shared::SumsHead));
  for (const u32 lie : {header.sum_chunks + 1, u32{1} << 31, ~u32{0}}) {
    for (u32 row = 0; row < header.sum_rows * header.sum_count; ++row)
      for (u32& chunk : rows[row].chunks) chunk = lie;
    u64 stack[1] = {0x1234};
    Call{stack}.begin(session);
    Call{stack}.end(session);
  }
  EXPECT_EQ(session.area().counts(0).untimed, 3U);
  for (u32 row = 0; row < header.sum_rows * header.sum_count; ++row)
    for (u32& chunk : rows[row].chunks) chunk = 0;
  reinterpret_cast<shared::SumsHead*>(bytes + header.sum_offset)->next_chunk = ~u32{0};
  u64 stack[1] = {0x1234};
  Call{stack}.begin(session);
  Call{stack}.end(session);
  EXPECT_EQ(session.area().counts(0).untimed, 4U) << "no chunk is left";
  EXPECT_EQ(session.sums().began, 4U);
}

INSTANTIATE_TEST_SUITE_P(Rows, CallsIn, testing::Values(0U, 64U));

}  // namespace
}  // namespace uprobe::test
