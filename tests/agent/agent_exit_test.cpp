// SPDX-License-Identifier: MIT
// Hits by jump where a function returns: the recorded state is the one after the return.
#include "tests/agent/jump_records.h"

namespace uprobe::test {
namespace {

INSTANTIATE_TEST_SUITE_P(FastAndNot, Jump, testing::Bool(), [](const auto& p) { return p.param ? "fast" : "agent"; });

// After the head of a return event: every register, and the word `below` the stack pointer.
constexpr u32 kWordAtReturn = 24 + 8 * shared::kRegCount, kReturnRegisters = kWordAtReturn + 8;
std::vector<Insn> all_registers_after_return(u32 below) {
  std::vector<Insn> program = all_registers();
  for (Insn& each : program) {
    if (each.op == Op::store_value) each.offset += 8;
    if (each.op == Op::dereference) each.immediate = 0 - u64{below};
  }
  return program;
}

TEST_P(Jump, AtAReturnTheStateIsThatAfterIt) {
  constexpr struct { u16 pops, lead; } kReturns[] = {{8, 0}, {8 + 0x1234, 0}, {0xffff, 0}, {8, 8}, {24, 16}};
  for (const auto& [pops, lead] : kReturns) {
    OneEvent session(all_registers_after_return(pops), kReturnRegisters, cpus(), kClaimed, 1 << 20);
    session.event().flags = shared::kEventReturns;
    JumpProbe probe(hit_site);
    probe.arm(session, fast(), {.pops = pops, .lead = lead, .distance = 0x5678});
    ASSERT_EQ(probe.body().records, fast());
    EXPECT_TRUE(passes_unnoticed(7, kArithmetic));
    const HitState in = make_state(4, kArithmetic | kDirection);
    HitState out{};
    take(session);
    hit_check(&in, &out);
    const auto records = take(session);
    ASSERT_EQ(records.size(), 1U);
    const Recorded& record = records[0];
    EXPECT_LT(record.ring, cpus());
    const auto reg = [&](Reg r) { return record.word(24 + 8 * static_cast<u32>(r)); };
    EXPECT_EQ(record.word(offsetof(shared::PayloadHead, ip)), probe.site() - 0x5678);
    const u64 address = record.word(offsetof(shared::ReturnHead, return_ip));
    EXPECT_EQ(reg(Reg::ip), address);
    EXPECT_EQ(record.word(kWordAtReturn), address);
    EXPECT_TRUE(lead != 0 || address == word_of(&out)) << "hit_check has pushed it";
    EXPECT_EQ(reg(Reg::ax), in.registers[0]);
    EXPECT_EQ(reg(Reg::r15), in.registers[14]);
    EXPECT_EQ(reg(Reg::flags), in.flags);
    session.event().flags = 0;
    probe.arm(session, false);
    hit_check(&in, &out);
    const auto before = take(session);
    ASSERT_EQ(before.size(), 1U);
    EXPECT_EQ(reg(Reg::sp), before[0].word(24 + 8 * static_cast<u32>(Reg::sp)) + lead + pops);
  }
}

// By the agent: a body records only if no consumer asks for restored registers.
TEST_P(Jump, InFrontOfAReturnWhatIsRestoredComesFromTheStack) {
  if (fast()) GTEST_SKIP() << "a case of the slow way";
  std::vector<Insn> program = all_registers_after_return(24);  // rsp is 24 higher: the first word
  OneEvent session(program, kReturnRegisters, cpus(), kClaimed, 1 << 20);
  session.event().flags = shared::kEventReturns;
  JumpProbe probe(hit_site);
  const HitState in = make_state(4, kArithmetic);
  HitState out{};
  for (const u32 index : {0U, 1U, 2U, 5U}) {
    probe.arm(session, false, {.pops = 8, .lead = 16, .restored = 1U << (shared::kRestoredBits * index)});
    hit_check(&in, &out);
    const auto records = take(session);
    ASSERT_EQ(records.size(), 1U);
    for (u32 i = 0; i < std::size(shared::kKeptRegisters); ++i) {
      constexpr u32 kInState[] = {1, 6, 11, 12, 13, 14};
      const u64 value = records[0].word(24 + 8 * static_cast<u32>(shared::kKeptRegisters[i]));
      EXPECT_EQ(value, i == index ? records[0].word(kWordAtReturn) : in.registers[kInState[i]]) << i;
    }
  }
}

// At the site a function returns; the consumers want the return, and the word at the stack pointer is the return address.
class Exit : public Jump {
 protected:
  static constexpr shared::i32 kDistance = 0x40;
  static constexpr u16 kPops = 24;
  static void make_exit(JumpProbe& probe, OneEvent& session) {
    shared::Consumer& consumer = probe.block().consumers[0];
    consumer.kind = static_cast<u8>(shared::ConsumerKind::exit);
    consumer.distance = kDistance, consumer.pops = kPops;
    session.event().flags = shared::kEventReturns;
  }
};
INSTANTIATE_TEST_SUITE_P(, Exit, testing::Values(false), [](const auto&) { return "agent"; });

TEST_P(Exit, ShowsTheRegistersAfterTheReturn) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, false);
  EXPECT_TRUE(passes_unnoticed(1, kArithmetic));
  const u64 sp = take(session).at(0).word(16 + 8 * static_cast<u32>(Reg::sp));
  make_exit(probe, session);
  const HitState in = make_state(1, kArithmetic);
  HitState out{};
  const auto hit = [&] { hit_check(&in, &out); };
  hit();
  const auto records = take(session);
  ASSERT_EQ(records.size(), 1U);
  const auto reg = [&](Reg r) { return records[0].word(16 + 8 * static_cast<u32>(r)); };
  EXPECT_EQ(records[0].word(8), probe.site() - kDistance) << "the function";
  EXPECT_EQ(reg(Reg::ip), word_of(&out)) << "what it returns to";
  EXPECT_EQ(reg(Reg::sp) % 16, (sp + kPops) % 16);
  EXPECT_EQ(reg(Reg::bx), in.registers[1]);
  EXPECT_EQ(reg(Reg::flags), in.flags);
  EXPECT_TRUE(passes_unnoticed(3, kArithmetic | kDirection));
}

// The newer one first, then the return's, which is still older in the list, whatever their order.
TEST_P(Exit, ReturnsComeAfterTheOthers) {
  OneEvent session({insn(Op::begin), load(Reg::sp), insn(Op::store_value, 8, 0, 24), insn(Op::end)}, 32, cpus(),
                   kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, false);
  make_exit(probe, session);
  PointBlock& block = probe.block();
  block.head.consumer_count = 2;
  block.consumers[1] = {};
  block.consumers[0].next = 2;  // the return is the newer one
  EXPECT_TRUE(passes_unnoticed(1, kArithmetic));
  const auto records = take(session);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].word(8), 0U + probe.site());
  EXPECT_EQ(records[1].word(8), probe.site() - kDistance);
  EXPECT_EQ(records[1].word(24) - records[0].word(24), kPops);
}

TEST_P(Exit, TakesNoMoreOfTheStack) {
  OneEvent session({insn(Op::begin), load(Reg::sp), insn(Op::store_value, 8, 0, 24), insn(Op::end)}, 32, cpus(),
                   kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, false);
  make_exit(probe, session);
  const u64 lowest = lowest_written(make_state(1, 0));
  const u64 used = take(session).at(0).word(24) - kPops - 128 - lowest;
  EXPECT_GT(used, 200U);
  EXPECT_LE(used, kMostStack);
}
// A function that consists of its return makes its entry record and takes it at once.
TEST_P(Exit, NotingTakesNoMoreOfTheStack) {
  constexpr u32 kNote = 7;
  OneEvent session({insn(Op::begin), insn(Op::load_entry, 8, 0, 16), insn(Op::store_value, 8, 0, 24), insn(Op::begin),
                    load(Reg::sp), insn(Op::store_value, 8, 0, 32), insn(Op::end), insn(Op::begin), load(Reg::di),
                    insn(Op::store_memory, 0, 8, 16), insn(Op::end)},
                   40, cpus(), kClaimed, 1 << 20);
  session.header()->tick_rate = 1;
  JumpProbe probe(hit_site);
  probe.arm(session, false);
  make_exit(probe, session);
  shared::Event& event = session.event();
  event.flags |= shared::kEventNotes;
  event.first_note = kNote, event.note_count = 4, event.note_bytes = 24;
  PointBlock& block = probe.block();
  block.head.consumer_count = 2;
  block.consumers[1] = {.kind = static_cast<u8>(shared::ConsumerKind::note)};
  block.consumers[0].next = 2;
  block.consumers[0].distance = 0, block.consumers[0].pops = 8;
  const u64 word = 0x1122334455667788;
  HitState in = make_state(1, 0);
  in.registers[5] = word_of(&word);
  const u64 lowest = lowest_written(in);
  const auto records = take(session);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].head.flags, 0) << "it is known";
  EXPECT_EQ(records[0].word(24), word);
  const u64 used = records[0].word(32) - 8 - 128 - lowest;
  std::printf("stack below the red zone: %lu bytes\n", used);
  EXPECT_GT(used, 200U);
  EXPECT_LE(used, kMostStack);
}

}  // namespace
}  // namespace uprobe::test
