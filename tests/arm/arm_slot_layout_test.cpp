// SPDX-License-Identifier: MIT
// Slots and bodies in a process that exists only in memory: which are shared, which are written again, which never change.
#include <gtest/gtest.h>

#include "arch/code/trampoline.h"
#include "engine/arm/slot_layout.h"
#include "engine/shared/trampoline.h"
#include "tests/arm/fake_target.h"

namespace uprobe::test {
namespace {

using control::Block;
using control::Pending;
using control::PlannedPoint;
using shared::Insn;
using shared::Op;
using shared::SlotHead;

constexpr Addr kBlock{0x10000000}, kCode{0x100000000000};
constexpr std::uint64_t kCodeBytes = 64 * 4096;

program::EventProgram program_of(shared::Reg reg) {
  program::EventProgram program;
  program.layout.fixed_bytes = 24;
  program.insns = {Insn{Op::begin, 0, 0, 0, 0}, Insn{Op::load_register, static_cast<std::uint8_t>(reg), 0, 0, 0},
                   Insn{Op::store_value, 8, 0, 16, 0}, Insn{Op::end, 0, 0, 0, 0}};
  return program;
}

// Events 0, 1 and 3 have the same program, event 2 has another one.
class Placing : public testing::Test {
 protected:
  void SetUp() override {
    target_.map_anonymous(kBlock, Block::bytes_for({64}));
    block_.emplace(Block::create(target_, kBlock, {64}).take());
    const trace::AreaSpec spec{.events = {&di_, &di_, &si_, &di_}, .ring_bytes = 8192, .cpu_ring_count = 2};
    area_.emplace(trace::Area::create_private(spec).take());
    block_->head().sessions[0].area = 0x20000000;
    block_->head().jump_entry = 0x30000000;
    target::Mapping code;
    code.begin = kCode, code.end = kCode + kCodeBytes, code.readable = code.executable = true;
    target_.map(code);
  }

  // One nop of five bytes each.
  void want(std::uint64_t offset, const std::vector<std::uint16_t>& events, bool jump) {
    planned_.push_back(std::make_unique<PlannedPoint>());
    for (const auto event : events) planned_.back()->consumers.push_back({.event = event});
    const std::vector<std::uint8_t> nop{0x0f, 0x1f, 0x44, 0, 0};
    Pending p{.point = {}, .code = nop, .planned = planned_.back().get(), .known = block_->find(kCode + offset)};
    p.point.address = kCode + offset, p.point.insn = nop;
    p.point.file_bias = kCode.value;
    p.window = jump ? &window_ : nullptr;
    std::vector<shared::Consumer> consumers;
    for (const auto event : events) consumers.push_back({.session = 0, .kind = 0, .event = event, .next = 0});
    p.point.consumers = block_->list_for(consumers, p.known.has_value()).take();
    pending_.push_back(std::move(p));
  }
  // An exit of a function that begins `distance` before it.
  void want_exit(std::uint64_t offset, std::uint16_t event, std::int32_t distance, std::uint16_t lead = 0) {
    want(offset, {event}, true);
    planned_.back()->consumers.front().kind = shared::ConsumerKind::exit;
    planned_.back()->consumers.front().distance = distance;
    planned_.back()->consumers.front().pops = 8;
    planned_.back()->consumers.front().lead = lead;
  }
  shared::ExitHead exit_of(std::uint64_t offset) {
    return target_.get<shared::ExitHead>(slot_at(offset) - sizeof(shared::ExitHead));
  }
  // Places the wanted points and publishes them.
  void place() {
    const control::PlaceContext context{.target = target_,
                                        .block = *block_,
                                        .area = &*area_,
                                        .has_stubs = false,
                                        .begin = kCode,
                                        .end = kCode + kCodeBytes,
                                        .refuse = [](const Pending&, const std::string& why) { ADD_FAILURE() << why; }};
    ASSERT_TRUE(control::place_all(context, pending_));
    std::vector<control::NewPoint> fresh;
    for (const Pending& p : pending_)
      if (!p.known) fresh.push_back(p.point);
    ASSERT_TRUE(block_->add(target_, fresh));
    for (const Pending& p : pending_) ASSERT_TRUE(!p.known || block_->set_point(target_, *p.known, p.point));
    pending_.clear();
  }
  const shared::Point& point_at(std::uint64_t offset) { return block_->points()[block_->find(kCode + offset).value()]; }
  Addr slot_at(std::uint64_t offset) {
    const shared::Point& point = point_at(offset);
    return Addr{point.copy - (point.jump_bytes != 0 ? shared::kCopyAfterThunk : shared::kCopyInSlot)};
  }
  SlotHead head_at(std::uint64_t offset) { return target_.get<SlotHead>(slot_at(offset)); }
  // The body that its thunk calls.
  Addr body_of(std::uint64_t offset) {
    const Addr copy{point_at(offset).copy};
    const auto distance = target_.get<std::int32_t>(copy - 4);
    return Addr{copy.value + static_cast<std::uint64_t>(std::int64_t{distance}) - arch::kBodyEntry};
  }
  void library_goes(std::uint64_t offset) {
    ASSERT_TRUE(block_->set_state(target_, *block_->find(kCode + offset), shared::PointState::unmapped));
  }

  program::EventProgram di_ = program_of(shared::Reg::di), si_ = program_of(shared::Reg::si);
  FakeTarget target_;
  std::optional<Block> block_;
  std::optional<trace::Area> area_;
  plan::Window window_;
  std::vector<std::unique_ptr<PlannedPoint>> planned_;
  std::vector<Pending> pending_;
};

TEST_F(Placing, EqualProgramsShareABody) {
  want(0, {0}, true);
  want(16, {1}, true);
  want(32, {2}, true);
  want(48, {1, 0}, true);  // two consumers: the agent's
  want(64, {0}, false);
  place();
  EXPECT_EQ(body_of(0), body_of(16));
  EXPECT_NE(body_of(0), body_of(32));
  EXPECT_NE(body_of(0), body_of(48));
  EXPECT_NE(body_of(32), body_of(48));
  for (const std::uint64_t offset : {0, 16, 32, 48}) {
    const Addr body = body_of(offset);
    const auto head = target_.get<shared::BodyHead>(body);
    EXPECT_EQ(head.mark, shared::kBodyMagic ^ body.value);
    EXPECT_EQ(head.code, arch::kBodyEntry);
    EXPECT_EQ(head.recorded != head.out, offset != 48) << "records by itself";
    EXPECT_EQ(point_at(offset).jump_to, slot_at(offset).value + shared::kThunkInSlot);
  }
}

TEST_F(Placing, EachSlotSaysWhoseItIs) {
  want(0, {0}, true);
  want(16, {3}, true);
  want(32, {1, 0}, true);
  want(64, {1}, false);
  place();
  const std::uint32_t events[] = {0, 3, shared::kAskAgent, shared::kAskAgent};
  std::uint32_t index = 0;
  for (const std::uint64_t offset : {0, 16, 32, 64}) {
    const SlotHead head = head_at(offset);
    EXPECT_TRUE(shared::is_slot_of(head, slot_at(offset).value, point_at(offset)));
    EXPECT_EQ(slot_at(offset).value % shared::kSlotUnit, 0U);
    EXPECT_EQ(head.address, kCode.value + offset);
    EXPECT_EQ(head.point, index);
    EXPECT_EQ(head.event, events[index++]);
    EXPECT_EQ(target_.get<shared::Mark>(Addr{shared::marks_of(point_at(offset))}).place, 0);
  }
  EXPECT_LE(slot_at(16) - slot_at(0), 64U);
}

// A thread may be in the thunk or the body, and the kernel may know the body's descriptor.
TEST_F(Placing, WhatComesBackKeepsItsSlotAndBody) {
  want(0, {0}, true);
  want(16, {1}, true);
  place();
  const Addr slot = slot_at(0), body = body_of(0);
  const std::uint32_t used = block_->head().islands[0].used;
  for (int round = 0; round < 3; ++round) {
    library_goes(0);
    target_.writes.clear();
    want(0, {static_cast<std::uint16_t>(round % 2 == 0 ? 3 : 0)}, true);
    place();
    ASSERT_EQ(slot_at(0), slot);
    EXPECT_EQ(body_of(0), body);
    EXPECT_EQ(head_at(0).event, round % 2 == 0 ? 3U : 0U);
    for (const FakeTarget::Write& write : target_.writes)
      EXPECT_TRUE(write.at < kBlock + Block::bytes_for({64}) || write.at == slot + offsetof(SlotHead, event));
  }
  EXPECT_EQ(block_->head().islands[0].used, used);
}

TEST_F(Placing, WithAnotherProgramItBecomesABreakpoint) {
  want(0, {0}, true);
  place();
  const std::uint64_t copy = point_at(0).copy;
  library_goes(0);
  want(0, {2}, true);
  place();
  EXPECT_EQ(point_at(0).jump_bytes, 0);
  EXPECT_EQ(point_at(0).copy, copy);
}

TEST_F(Placing, WhoHasSharedItsBodyStillHasIt) {
  want(0, {0}, true);
  want(16, {0}, true);
  place();
  library_goes(0);
  library_goes(16);
  want(0, {2}, true);
  want(16, {0}, true);
  place();
  EXPECT_EQ(point_at(0).jump_bytes, 0);
  EXPECT_EQ(point_at(16).jump_bytes, shared::kJumpBytes);
}

TEST_F(Placing, ASlotOfAnExitNamesItsFunction) {
  want_exit(0x40, 0, 0x40);
  want_exit(0x60, 1, 0x20);
  want_exit(0x80, 0, 0, 16);
  want(0xa0, {0}, true);
  place();
  EXPECT_EQ(exit_of(0x40).function, kCode.value);
  EXPECT_EQ(exit_of(0x60).function, kCode.value + 0x40);
  EXPECT_EQ(exit_of(0x80).function, kCode.value + 0x80);
  EXPECT_EQ(exit_of(0x60).lead, 0U);
  EXPECT_EQ(exit_of(0x60).moves, 8U);
  EXPECT_EQ(exit_of(0x80).lead, 16U);
  EXPECT_EQ(exit_of(0x80).moves, 24U);
  EXPECT_EQ(body_of(0x40), body_of(0x60));
  EXPECT_EQ(body_of(0x40), body_of(0x80));
  EXPECT_NE(body_of(0x40), body_of(0xa0)) << "which is no return";
  for (const std::uint64_t offset : {0x40, 0x60, 0x80, 0xa0}) {
    EXPECT_EQ(slot_at(offset).value % shared::kSlotUnit, 0U);
    EXPECT_TRUE(shared::is_slot_of(head_at(offset), slot_at(offset).value, point_at(offset)));
    EXPECT_NE(head_at(offset).event, shared::kAskAgent);
  }
}

TEST_F(Placing, AnExitComesBackToItsSlotOnlyForItsFunction) {
  want_exit(0x40, 0, 0x40);
  place();
  const Addr slot = slot_at(0x40);
  library_goes(0x40);
  want_exit(0x40, 1, 0x40);
  place();
  EXPECT_EQ(slot_at(0x40), slot);
  EXPECT_EQ(point_at(0x40).jump_bytes, shared::kJumpBytes);
  library_goes(0x40);
  want_exit(0x40, 1, 0x20);
  place();
  EXPECT_EQ(point_at(0x40).jump_bytes, 0);
}

TEST_F(Placing, WhoHasLostItsConsumerIsTheAgents) {
  want_exit(0x40, 0, 0x40);
  place();
  ASSERT_TRUE(control::ask_agent(target_, Addr{point_at(0x40).copy}));
  EXPECT_LT(static_cast<std::int32_t>(head_at(0x40).event), 0);
}

TEST_F(Placing, AFurtherConsumerIsTheAgents) {
  want(0, {0}, true);
  want(16, {0}, false);
  place();
  ASSERT_TRUE(block_->want(target_, 0, {{.session = 0, .event = 1, .next = 0}}));
  EXPECT_LT(static_cast<std::int32_t>(head_at(0).event), 0);
  ASSERT_TRUE(block_->keep_only(target_, 0, {{.session = 0, .event = 1, .next = 0}}));
  EXPECT_LT(static_cast<std::int32_t>(head_at(0).event), 0) << "the body was made for another event";
  ASSERT_TRUE(block_->want(target_, 0, {{.session = 0, .event = 0, .next = 0}}));
  ASSERT_TRUE(block_->keep_only(target_, 0, {{.session = 0, .event = 0, .next = 0}}));
  EXPECT_EQ(head_at(0).event, 0U) << "as it was";
  target_.writes.clear();
  ASSERT_TRUE(block_->want(target_, 1, {{.session = 0, .event = 1, .next = 0}}));
  for (const FakeTarget::Write& write : target_.writes) EXPECT_LT(write.at, kBlock + Block::bytes_for({64}));
}

}  // namespace
}  // namespace uprobe::test
