// SPDX-License-Identifier: MIT
// Hits by jump on a stack of the agent's: nothing is written below the application's stack pointer, and a ring is claimed.
#include <gtest/gtest.h>

#include <algorithm>

#include "preload/jump_stacks.h"
#include "preload/slots.h"
#include "preload/trampolines.h"
#include "tests/agent/jump_records.h"

namespace uprobe::test {
namespace {

class SwitchedJump : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!has_avx()) GTEST_SKIP() << "no AVX here";
    install_agent_handlers();
    probe_.is_switched = true;
  }
  static bool fast() { return GetParam(); }
  JumpProbe probe_{hit_site};
};
INSTANTIATE_TEST_SUITE_P(FastAndNot, SwitchedJump, testing::Bool(),
                         [](const auto& p) { return p.param ? "fast" : "agent"; });

bool is_claimed(OneEvent& session) {
  for (u32 i = cpus(); i < cpus() + kClaimed; ++i)
    if (session.area().ring(i).owner != 0) return true;
  return false;
}

TEST_P(SwitchedJump, TheApplicationNoticesNothing) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  probe_.arm(session, fast());
  ASSERT_EQ(probe_.body().records, fast());
  u64 hits = 0;
  for (u64 seed = 0; seed < 50; ++seed)
    for (const u64 flags : kFlagSets) {
      EXPECT_TRUE(passes_unnoticed(seed, flags)) << seed << " " << std::hex << flags;
      ++hits;
    }
  EXPECT_EQ(take(session).size(), hits);
  EXPECT_FALSE(is_claimed(session));
}

TEST_P(SwitchedJump, WhatIsRecordedIsTheStateBeforeTheInstruction) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  probe_.arm(session, fast());
  const HitState in = make_state(4, kArithmetic | kDirection);
  HitState out{};
  hit_check(&in, &out);
  const auto records = take(session);
  ASSERT_EQ(records.size(), 1U);
  const auto reg = [&](Reg r) { return records[0].word(16 + 8 * static_cast<u32>(r)); };
  constexpr Reg kOrder[] = {Reg::ax, Reg::bx,  Reg::cx,  Reg::dx,  Reg::si,  Reg::di,  Reg::bp, Reg::r8,
                            Reg::r9, Reg::r10, Reg::r11, Reg::r12, Reg::r13, Reg::r14, Reg::r15};
  for (u32 i = 0; i < 15; ++i) EXPECT_EQ(reg(kOrder[i]), in.registers[i]) << i;
  EXPECT_EQ(reg(Reg::flags), in.flags);
  EXPECT_EQ(reg(Reg::ip), probe_.site());
  EXPECT_EQ(records[0].word(kAllRegisters - 8), word_of(&out)) << "hit_check has pushed it";
  shared::PayloadHead head;
  std::memcpy(&head, records[0].payload.data(), sizeof head);
  EXPECT_EQ(head.pid, ::getpid());
  EXPECT_EQ(head.ip, probe_.site());
  EXPECT_TRUE(!fast() || records[0].ring >= cpus()) << "no section";
}

TEST_P(SwitchedJump, NothingIsWrittenBelowTheStackPointer) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  const HitState in = make_state(3, kArithmetic);
  const u64 alone = lowest_written(in);
  probe_.arm(session, fast());
  EXPECT_EQ(lowest_written(in), alone);
}

TEST_P(SwitchedJump, ARingThatAnotherThreadHasIsLeftAlone) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  probe_.arm(session, fast());
  for (u32 i = cpus(); i + 1 < cpus() + kClaimed; ++i) session.area().ring(i).owner = 77;
  for (u64 i = 0; i < 20; ++i) EXPECT_TRUE(passes_unnoticed(i, kArithmetic));
  EXPECT_EQ(take(session).size(), 20U);
  for (u32 i = cpus(); i + 1 < cpus() + kClaimed; ++i) EXPECT_EQ(session.area().ring(i).owner, 77U);
  EXPECT_EQ(session.area().ring(cpus() + kClaimed - 1).owner, 0U);
}

TEST_P(SwitchedJump, ALoadThatFaultsCostsItsValueOnly) {
  OneEvent session({insn(Op::begin), load(Reg::di), insn(Op::dereference), insn(Op::store_value, 8, 0, 16),
                    insn(Op::begin), load(Reg::si), insn(Op::store_value, 8, 0, 24), insn(Op::end)},
                   32, cpus(), kClaimed, 1 << 20);
  probe_.arm(session, fast());
  ASSERT_EQ(probe_.body().records, fast());
  for (u64 seed = 0; seed < 10; ++seed) {
    EXPECT_TRUE(passes_unnoticed(seed, kArithmetic));
    const auto records = take(session);
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(records[0].word(24), make_state(seed, kArithmetic).registers[4]);
    EXPECT_FALSE(is_claimed(session));
  }
}

TEST_P(SwitchedJump, WhatHasNoRoomIsCounted) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 8192);
  probe_.arm(session, fast());
  constexpr u64 kHits = 400;
  for (u64 i = 0; i < kHits; ++i) EXPECT_TRUE(passes_unnoticed(i, kArithmetic));
  EXPECT_EQ(take(session).size() + session.counts().lost_full, kHits);
  EXPECT_FALSE(is_claimed(session));
}

// A thread is taken out at each byte; which are instructions does not matter here.
TEST(Switched, AThreadThatIsTakenOutGivesItsRingBack) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.is_switched = true;
  probe.arm(session, true);
  const shared::ProcessBlock& block = probe.block().head;
  shared::BodyHead head;
  std::memcpy(&head, probe.body().bytes.data(), sizeof head);
  ASSERT_NE(head.unclaim, 0);
  u64 stack[16] = {};
  stack[7] = probe.copy() - shared::kStackRestoreBytes, stack[8] = 0x7ffe1000;
  for (const bool has_it : {false, true})
    for (u32 at = head.code + 12U; at < head.out; ++at) {
      constexpr u8 kPopRax = 0x58;  // where the agent takes it for the instruction, the stack pointer is another one
      if (probe.body().bytes[at] == kPopRax) continue;
      shared::Ring ring{};
      ring.owner = 77;
      agent::SignalFrame frame{};
      frame.ip = probe.address() + at, frame.sp = word_of(stack), frame.di = word_of(&ring);
      frame.flags = has_it ? 0x40 : 0;
      const bool is_recorded = at >= head.recorded;
      EXPECT_EQ(agent::leave_trampoline(block, frame), is_recorded ? agent::Jump::recorded : agent::Jump::arriving);
      EXPECT_EQ(frame.ip, is_recorded ? probe.copy() : probe.site()) << at;
      EXPECT_EQ(frame.sp, 0x7ffe1000U) << at;
      const bool holds =
          at == head.unclaim || (at > head.claimed && at <= head.recorded) || (at == head.claimed && has_it);
      EXPECT_EQ(ring.owner, holds ? 0U : 77U) << at;
    }
}

TEST(Switched, AThreadInASwitchHasNotComeYet) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.is_switched = true;
  probe.arm(session, true);
  const shared::ProcessBlock& block = probe.block().head;
  u64 kept = 0;
  asm("mov %%fs:8, %0" : "=r"(kept));
  const u64 word = 0x7ffe2000;
  struct Place {
    u32 at;
    bool has_rcx, is_over;
  };
  for (const Place place : {Place{0, true, false},
                            {9, true, false},
                            {shared::kSwitchTakesRcx, false, false},
                            {20, false, false},
                            {23, false, false},
                            {shared::kSwitchIsOver, false, true},
                            {shared::kSwitchJump, true, true},
                            {shared::kSwitchTrap, false, false}}) {
    agent::SignalFrame frame{};
    frame.ip = probe.real_switch() + place.at, frame.cx = 5, frame.sp = place.is_over ? word_of(&word) : 0x7ffe2000;
    EXPECT_EQ(agent::leave_trampoline(block, frame), agent::Jump::arriving) << place.at;
    EXPECT_EQ(frame.ip, probe.site());
    EXPECT_EQ(frame.sp, 0x7ffe2000U) << place.at;
    EXPECT_EQ(frame.cx, place.has_rcx ? 5 : kept) << place.at;
  }
  EXPECT_EQ(agent::switch_around(block, probe.real_switch() - 1), 0U);
  EXPECT_EQ(agent::switch_around(block, probe.real_switch() + shared::kSwitchBytes), 0U);
  agent::SignalFrame trapped{};
  trapped.ip = probe.real_switch() + shared::kSwitchTrap + 1;
  EXPECT_TRUE(agent::leave_switch_trap(block, trapped));
  EXPECT_EQ(trapped.ip, probe.site());
  EXPECT_EQ(trapped.cx, kept);
  trapped.ip = probe.real_switch() + shared::kSwitchTrap;
  EXPECT_FALSE(agent::leave_switch_trap(block, trapped));
}

// The call of its thunk, and what comes after it.
TEST(Switched, AThreadInItsThunkIsBackOnItsStack) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.is_switched = true;
  probe.arm(session, true);
  const u64 word = 0x7ffe3000, thunk = probe.slot() + shared::kThunkInSlot;
  for (const u32 at : {shared::kSwitchedCall, shared::kThunkBytes - shared::kStackRestoreBytes}) {
    agent::SignalFrame frame{};
    frame.ip = thunk + at, frame.sp = word_of(&word);
    const bool is_recorded = at != shared::kSwitchedCall;
    EXPECT_EQ(agent::leave_trampoline(probe.block().head, frame),
              is_recorded ? agent::Jump::recorded : agent::Jump::arriving);
    EXPECT_EQ(frame.ip, is_recorded ? probe.copy() : probe.site());
    EXPECT_EQ(frame.sp, 0x7ffe3000U);
  }
}

}  // namespace
}  // namespace uprobe::test
