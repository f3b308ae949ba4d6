// SPDX-License-Identifier: MIT
// Trampolines in this very program: the application notices nothing, and their own records are byte for byte those of the
// interpreter.
#include <gtest/gtest.h>

#include <algorithm>

#include "preload/slots.h"
#include "preload/trampolines.h"
#include "tests/agent/jump_records.h"

namespace uprobe::test {
namespace {

INSTANTIATE_TEST_SUITE_P(FastAndNot, Jump, testing::Bool(), [](const auto& p) { return p.param ? "fast" : "agent"; });

TEST_P(Jump, RegistersFlagsVectorsAndRedZoneSurvive) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  ASSERT_EQ(probe.body().records, fast());
  u64 hits = 0;
  for (u64 seed = 0; seed < 50; ++seed)
    for (const u64 flags : kFlagSets) {
      EXPECT_TRUE(passes_unnoticed(seed, flags)) << seed << " " << std::hex << flags;
      ++hits;
    }
  EXPECT_EQ(take(session).size(), hits);
}

TEST_P(Jump, EachArithmeticFlagComesBack) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  constexpr u64 kBits[] = {1, 4, 0x10, 0x40, 0x80, 0x800};
  for (u32 set = 0; set < 64; ++set) {
    u64 flags = 0;
    for (u32 i = 0; i < 6; ++i) flags |= (set >> i & 1) != 0 ? kBits[i] : 0;
    EXPECT_TRUE(passes_unnoticed(set, flags)) << std::hex << flags;
  }
}

// The store into the record faults if the application has alignment checks on.
TEST_P(Jump, WordsThatAreNotAlignedAreRecordedUnderAlignmentChecks) {
  constexpr u32 kOdd = 17;
  OneEvent session({insn(Op::begin), load(Reg::di), insn(Op::store_value, 8, 0, kOdd), insn(Op::end)}, kOdd + 8, cpus(),
                   kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  ASSERT_EQ(probe.body().records, fast());
  for (const u64 flags : {kArithmetic, kArithmetic | kAlignment, kAlignment, u64{0}}) {
    EXPECT_TRUE(passes_unnoticed(2, flags));
    const auto records = take(session);
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(records[0].word(kOdd), make_state(2, flags).registers[5]);
    EXPECT_EQ(records[0].ring < cpus(), !fast() || (flags & kAlignment) == 0) << "else by the agent, outside a section";
  }
}

TEST_P(Jump, WhatIsRecordedIsTheStateBeforeTheInstruction) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  const HitState in = make_state(4, kArithmetic | kDirection);
  HitState out{};
  hit_check(&in, &out);
  const auto records = take(session);
  ASSERT_EQ(records.size(), 1U);
  const Recorded& record = records[0];
  EXPECT_LT(record.ring, cpus());
  const auto reg = [&](Reg r) { return record.word(16 + 8 * static_cast<u32>(r)); };
  constexpr Reg kOrder[] = {Reg::ax, Reg::bx,  Reg::cx,  Reg::dx,  Reg::si,  Reg::di,  Reg::bp, Reg::r8,
                            Reg::r9, Reg::r10, Reg::r11, Reg::r12, Reg::r13, Reg::r14, Reg::r15};
  for (u32 i = 0; i < 15; ++i) EXPECT_EQ(reg(kOrder[i]), in.registers[i]) << i;
  EXPECT_EQ(reg(Reg::flags), in.flags);
  EXPECT_EQ(reg(Reg::ip), probe.site());
  EXPECT_EQ(reg(Reg::cs), 0x33U);
  EXPECT_EQ(reg(Reg::ss), 0x2bU);
  EXPECT_EQ(reg(Reg::orig_ax), ~u64{0});
  EXPECT_EQ(record.word(kAllRegisters - 8), word_of(&out)) << "hit_check has pushed it";
  shared::PayloadHead head;
  std::memcpy(&head, record.payload.data(), sizeof head);
  EXPECT_EQ(head.pid, ::gettid());
  EXPECT_EQ(head.ip, probe.site());
  EXPECT_EQ(head.type, 0);
}

// A whole word that is one shows as its return address, wherever it is read; a part of one is no address.
TEST_P(Jump, AddressesOfStubsDoNotShow) {
  OneEvent session(
      {insn(Op::begin), load(Reg::si), insn(Op::store_value, 8, 0, 16), insn(Op::begin), load(Reg::di),
       insn(Op::store_memory, 0, 8, 24), insn(Op::begin), load(Reg::di), insn(Op::store_memory, 8, 8, 32),
       insn(Op::begin), load(Reg::di), insn(Op::dereference), insn(Op::dereference), insn(Op::store_value, 8, 0, 40),
       insn(Op::begin), load(Reg::di), insn(Op::store_memory, 4, 8, 48), insn(Op::end)},
      56, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.has_stubs = true;
  probe.arm(session, fast());
  ASSERT_EQ(probe.body().records, fast());
  constexpr u32 kNumber = shared::kReturnStubs - 1;
  const u64 there = 0x1122334455667788, root = word_of(&there);
  const u64 stub = word_of(agent::uprobe_return_stubs) + kNumber * shared::kStubUnit + shared::kStubReturns;
  const auto before = std::exchange(agent::uprobe_return_slots[kNumber], {root, 1, root, 0, 0});
  for (const u64 word : {stub, root}) {
    HitState in = make_state(1, 0), out{};
    in.registers[4] = word, in.registers[5] = word_of(&word);
    hit_check(&in, &out);
    const auto records = take(session);
    ASSERT_EQ(records.size(), 1U);
    for (const u32 at : {16U, 24U, 32U}) EXPECT_EQ(records[0].word(at), root) << at;
    EXPECT_EQ(records[0].word(40), there);
    EXPECT_EQ(records[0].word(48), word);
  }
  agent::uprobe_return_slots[kNumber] = before;
}

// The number of the process is the tool's, that of the thread its own.
TEST_P(Jump, InAnotherNamespaceTheProcessIsNamed) {
  const std::vector<Insn> own = {insn(Op::begin), insn(Op::load_thread), insn(Op::store_value, 8, 0, 16),
                                 insn(Op::end)};
  OneEvent session(own, 24, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  shared::ProcessBlock& block = probe.block().head;
  block.flags |= shared::kBlockElsewhere;
  probe.arm(session, fast());
  EXPECT_EQ(probe.body().records, fast());
  for (const bool of_child : {false, true}) {
    const shared::TaskWords words = shared::words_of(1234567, of_child);
    block.process_word = words.process, block.thread_word = words.thread;
    EXPECT_TRUE(passes_unnoticed(1, kArithmetic));
    const auto records = take(session);
    ASSERT_EQ(records.size(), 1U);
    EXPECT_LT(records[0].ring, cpus());
    shared::PayloadHead head;
    std::memcpy(&head, records[0].payload.data(), sizeof head);
    const auto thread = static_cast<u32>(::gettid()) & shared::kNumberMask;
    EXPECT_EQ(head.type, 0);
    EXPECT_EQ(shared::task_of(head), (shared::TaskNumber{1234567, thread, of_child}));
    EXPECT_EQ(records[0].word(16), static_cast<u64>(::gettid()));
  }
  block.flags &= ~shared::kBlockElsewhere;
  block.process_word = block.thread_word = 0;
}

TEST_P(Jump, NothingIsRecordedWhileTheSessionIsOff) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  session.area().set_state(shared::SessionState::off);
  EXPECT_TRUE(passes_unnoticed(1, kArithmetic));
  EXPECT_EQ(take(session).size(), 0U);
}

TEST_P(Jump, TheFirstHitAfterTheToolsDeathCountsSemaphoresDown) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.watches_tool = true;
  probe.arm(session, fast());
  u16 semaphore = 1;
  probe.block().head.semaphores[0] = {word_of(&semaphore), 1, 0};
  probe.block().head.semaphore_count = 1;
  const auto hit = [&](u64 seed) {
    EXPECT_TRUE(passes_unnoticed(seed, kArithmetic));
    return take(session).size();
  };
  session.header()->tool_life = 4'194'303;
  EXPECT_EQ(hit(1), 1U);
  EXPECT_EQ(semaphore, 1);
  session.header()->tool_life = shared::kLifeEnded;
  EXPECT_EQ(hit(2), 1U);
  EXPECT_EQ(semaphore, 0);
  EXPECT_EQ(hit(3), 1U);
  EXPECT_EQ(semaphore, 0);
}

TEST_P(Jump, TwoConsumersGetARecordEach) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  probe.block().consumers[1].next = 1;
  probe.block().head.consumer_count = 2;
  probe.block().point.consumer = 2;  // the newer one
  probe.head().event = shared::kAskAgent;
  EXPECT_TRUE(passes_unnoticed(1, kArithmetic));
  EXPECT_EQ(take(session).size(), 2U);
}

TEST_P(Jump, WithoutRseqARingIsClaimed) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  shared::ProcessBlock& block = probe.block().head;
  const auto offset = std::exchange(block.rseq_offset, 0);
  const auto own = std::exchange(block.own_rseq, 0);
  EXPECT_TRUE(passes_unnoticed(1, kArithmetic));
  auto records = take(session);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_GE(records[0].ring, cpus());
  block.rseq_offset = offset, block.own_rseq = own;
  // The kernel tells a thread its CPU again when it has been interrupted: then it is another turn.
  bool is_claimed = false;
  for (int turns = 0; !is_claimed && turns < 100; ++turns) {
    std::thread([&] {
      agent::forget_cpu(probe.block().head);
      EXPECT_TRUE(passes_unnoticed(2, kArithmetic));
    }).join();
    records = take(session);
    ASSERT_EQ(records.size(), 1U);
    is_claimed = records[0].ring >= cpus();
  }
  EXPECT_TRUE(is_claimed);
}

TEST_P(Jump, WithoutAClockTheRecordSaysSo) {
  if (!clock_can_fault()) GTEST_SKIP() << "rdtsc never faults on this machine";
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  ASSERT_EQ(::syscall(SYS_prctl, 26 /* PR_SET_TSC */, 2 /* PR_TSC_SIGSEGV */, 0, 0, 0), 0);
  const bool unnoticed = passes_unnoticed(1, kArithmetic);
  ASSERT_EQ(::syscall(SYS_prctl, 26, 1 /* PR_TSC_ENABLE */, 0, 0, 0), 0);
  EXPECT_TRUE(unnoticed);
  const auto records = take(session);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].head.tsc, 0U);
  EXPECT_EQ(records[0].head.flags, shared::kRecordNoClock);
}

TEST_P(Jump, AFullRingCounts) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), 0, 8192);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  const u64 fit = 8192 / (sizeof(RecordHead) + kAllRegisters), hits = cpus() * fit + 10;
  for (u64 i = 0; i < hits; ++i) EXPECT_TRUE(passes_unnoticed(i, kArithmetic));
  EXPECT_EQ(take(session).size() + session.counts().lost_full, hits);
  EXPECT_GE(session.counts().lost_full, 10U);
  for (u32 i = 0; i < cpus(); ++i) EXPECT_FALSE(session.area().is_being_written(i));
}

// The other rings take what has no room, and each keeps an eighth of itself for records that have no other.
TEST_P(Jump, ABurstHasTheRoomOfAllRings) {
  constexpr u64 kBytes = sizeof(RecordHead) + kAllRegisters;
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 8192);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  const u64 fit = 8192 / kBytes, hits = (cpus() + kClaimed) * fit + 10;
  for (u64 i = 0; i < hits; ++i) EXPECT_TRUE(passes_unnoticed(i, kArithmetic));
  for (u32 i = cpus(); i < cpus() + kClaimed; ++i) {
    EXPECT_GE(session.records(i), 8192 * 7 / 8 / kBytes) << i;
    EXPECT_LT(session.records(i), fit) << i;
    EXPECT_EQ(session.area().ring(i).owner, 0U);
  }
  EXPECT_EQ(take(session).size() + session.counts().lost_full, hits);
  EXPECT_EQ(session.counts().lost_busy, 0U);
}

TEST_P(Jump, ARecordOfExactlyTheRoomFits) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), 0, 8192);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  const u32 units = (sizeof(RecordHead) + kAllRegisters) / 8;
  const auto expect_published = [&](u32 number, u32 missing) {
    for (u32 i = 0; i < cpus(); ++i) {
      session.area().ring(i).commit = u64{0xfffffffe} << 32 | number;  // and the position wraps
      session.area().ring(i).begun = number;
      session.area().ring(i).tail = 0xfffffffe + units - 1024 - missing;
    }
    EXPECT_TRUE(passes_unnoticed(1, kArithmetic));
    u64 published = 0;
    for (u32 i = 0; i < cpus(); ++i)
      published += session.area().ring(i).commit == (u64{units - 2} << 32 | static_cast<u32>(number + 1));
    EXPECT_EQ(published, 1 - missing) << std::hex << number;
  };
  for (const u32 number : {0U, 0xfffffffeU, 0xffffffffU})
    for (const u32 missing : {0U, 1U}) expect_published(number, missing);
  EXPECT_EQ(session.counts().lost_full, 3U);
}

// Memory for the programs below: words that point to each other, strings of all lengths, an end after which nothing is mapped.
class Playground {
 public:
  Playground() {
    std::mt19937_64 random(3);
    for (u64& word : words_) word = word_of(memory_.begin()) + random() % (memory_.end() - memory_.begin() - 64);
    for (u32 i = 0; i < 1500; ++i) text_[i] = static_cast<char>(i % 97 == 0 ? 0 : 'a' + i % 26);
    for (u8* at = memory_.begin(); at != memory_.end(); at += 8) std::memcpy(at, &words_[random() % 64], 8);
    std::memcpy(memory_.end() - 8, "endless", 8);
    std::memset(long_text_, 'l', sizeof long_text_ - 1);
  }
  u64 any(u64 random) const {
    switch (random % 16) {
      case 0:
        return word_of(memory_.end()) - 1 - random / 16 % 12;
      case 1:
        return random / 16 % 3 == 0 ? 0 : random / 16 % 3 == 1 ? 0x8000000000000000 : word_of(memory_.end()) + 5;
      case 2:
        return word_of(long_text_) + random / 16 % 4000;
      case 3:
      case 4:
      case 5:
        return word_of(text_) + random / 16 % 1400;
      case 6:
        return random;
      default:
        return word_of(memory_.begin()) + random / 16 % (2 * kPage - 64);
    }
  }

 private:
  HoleyMemory memory_{2};
  u64 words_[64];
  char text_[1500]{};
  char long_text_[5000]{};
};

struct RandomProgram {
  std::vector<Insn> insns;
  u32 fixed = 16;
};

Insn source(std::mt19937_64& random) {
  switch (random() % 8) {
    case 0:
      return insn(Op::load_constant, 0, 0, 0, random() % 2 == 0 ? random() : random() % 1000);
    case 1:
      return insn(Op::load_file_offset, 0, 0, 0, random() % 4096);
    default:
      return insn(Op::load_register, static_cast<u8>(random() % shared::kRegCount));
  }
}

RandomProgram random_program(std::mt19937_64& random) {
  constexpr u8 kSizes[] = {1, 2, 4, 8};
  RandomProgram made;
  for (u64 arguments = random() % 7; arguments != 0; --arguments) {
    made.insns.push_back(insn(Op::begin));
    const u64 kind = random() % 10;
    const u8 size = kSizes[random() % 4];
    u32 bytes = size;
    made.insns.push_back(source(random));
    for (u64 steps = random() % 4; steps != 0; --steps) {
      const Op op = random() % 4 == 0 ? Op::add : random() % 6 == 0 ? Op::shift_right : Op::dereference;
      made.insns.push_back(insn(op, 0, 0, 0, op == Op::shift_right ? random() % 64 : random() % 64 - 16));
    }
    if (kind < 5)
      made.insns.push_back(insn(Op::store_value, size, 0, made.fixed));
    else if (kind < 8)
      made.insns.push_back(insn(Op::store_memory, 0, size, made.fixed, random() % 64 - 16));
    else
      made.insns.push_back(insn(Op::store_string, 0, 0, made.fixed, random() % 32)), bytes = 4;
    made.fixed += bytes;
  }
  made.insns.push_back(insn(Op::end));
  return made;
}

// Nothing if the record would have been too big, or found no room.
std::optional<Recorded> one_hit(OneEvent& session, const HitState& in) {
  static struct {
    u64 before[8];
    HitState out;
    u64 after[8];
  } zeroed;
  zeroed = {};
  HitState& out = zeroed.out;  // programs read the stack, which holds its address
  hit_check_alike(&in, &out);
  HitState expected = in;
  expected.registers[1] += 1;
  EXPECT_EQ(std::memcmp(&out, &expected, sizeof out), 0);
  auto records = take(session);
  EXPECT_EQ(records.size() + std::exchange(session.counts().lost_too_big, 0), 1U);
  return records.empty() ? std::nullopt : std::optional(records[0]);
}

TEST(JumpPrograms, TheSameBytesAsTheInterpreter) {
  if (!has_avx()) GTEST_SKIP() << "no AVX here";
  install_agent_handlers();
  if (point_block().head.rseq_offset == 0) GTEST_SKIP() << "no rseq here";
  const Playground playground;
  std::mt19937_64 random(7);
  int in_place = 0, with_text = 0;
  for (int round = 0; round < 700; ++round) {
    const RandomProgram program = random_program(random);
    OneEvent session(program.insns, program.fixed, cpus(), kClaimed, 16384);
    JumpProbe probe(hit_site);
    for (int hit = 0; hit < 6; ++hit) {
      HitState in = make_state(random(), kArithmetic);
      for (u64& value : in.registers) value = playground.any(random());
      in.registers[5] = playground.any(random());
      probe.arm(session, true);
      ASSERT_TRUE(probe.body().records);
      const auto one = one_hit(session, in);
      probe.arm(session, false);
      const auto other = one_hit(session, in);
      ASSERT_EQ(one.has_value(), other.has_value());
      if (!one) continue;
      const Recorded &ours = *one, &reference = *other;
      ASSERT_EQ(ours.payload, reference.payload) << round << " " << hit;
      EXPECT_EQ(ours.head.length, reference.head.length);
      EXPECT_EQ(ours.head.flags, reference.head.flags);
      EXPECT_EQ(ours.head.payload_bytes, reference.head.payload_bytes);
      in_place += ours.ring < cpus();
      with_text += ours.ring < cpus() && ours.payload.size() > program.fixed;
    }
  }
  EXPECT_GT(in_place, 500);
  EXPECT_GT(with_text, 50);
}

TEST(JumpPrograms, WhatIsNotSupportedIsLeftToTheAgent) {
  install_agent_handlers();
  for (const Insn& odd : {insn(Op::store_text, 0, 2, 16), insn(Op::shift, 8, 1, 16, 1),
                          insn(Op::store_memory, 0, 3, 16), insn(Op::store_comm, 0, 0, 16),
                          insn(Op::store_string_array, 0, 2, 16), insn(Op::dereference, 0, 0, 0, u64{1} << 40),
                          insn(Op::add, 0, 0, 0, u64{1} << 40), insn(Op::shift_right, 0, 0, 0, 64)}) {
    OneEvent session({insn(Op::begin), load(Reg::di), odd, insn(Op::end)}, 32, cpus(), kClaimed, 8192);
    JumpProbe probe(hit_site);
    probe.arm(session, true);
    EXPECT_FALSE(probe.body().records) << static_cast<int>(odd.op);
  }
}

TEST_P(Jump, StackUseIsBounded) {
  std::vector<Insn> program = all_registers();
  program.pop_back();
  for (const Insn& more : {insn(Op::begin), load(Reg::di), insn(Op::store_string, 4, 0, kAllRegisters)})
    program.push_back(more);
  const u32 vector_bytes = fast() ? 0 : shared::kXmmBytes;  // no body stores them
  if (!fast())
    for (const Insn& more : {insn(Op::begin), insn(Op::store_vector, 15, shared::kXmmBytes, kAllRegisters + 4)})
      program.push_back(more);
  program.push_back(insn(Op::end));
  OneEvent session(program, kAllRegisters + 4 + vector_bytes, cpus(), kClaimed, 1 << 20);
  JumpProbe probe(hit_site);
  probe.arm(session, fast());
  const std::string text(300, 't');
  HitState in = make_state(1, 0);
  in.registers[5] = word_of(text.c_str());
  const auto stack_use = [&] {  // the least of some: a hit whose section the kernel cuts short is left to the agent
    u64 least = ~u64{0};
    for (int hits = 0; hits < 8; ++hits) {
      const u64 lowest = lowest_written(in);
      least = std::min(least, take(session).at(0).word(16 + 8 * static_cast<u32>(Reg::sp)) - 128 - lowest);
    }
    return least;
  };
  const u64 in_section = stack_use();
  probe.block().head.rseq_offset = 0, probe.block().head.own_rseq = 0;
  const u64 claimed = stack_use();
  std::printf("stack below the red zone: %lu bytes; where a ring is claimed: %lu\n", in_section, claimed);
  EXPECT_GE(in_section, 72U);
  EXPECT_LE(in_section, fast() ? 72U : kMostStack);
  EXPECT_LE(claimed, kMostStack);
}

// Every place of a slot, as the agent classifies it.
TEST(Trampolines, AThreadInAThunkHasNotComeYet) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 8192);
  JumpProbe probe(hit_site);
  probe.arm(session, true);
  const shared::ProcessBlock& block = probe.block().head;
  const u64 thunk = probe.slot() + shared::kThunkInSlot, sp = word_of(__builtin_frame_address(0)) - 4096;
  for (const u64 ip : {thunk, thunk + shared::kThunkCall}) {
    agent::SignalFrame frame{};
    frame.ip = ip, frame.sp = sp;
    EXPECT_EQ(agent::leave_trampoline(block, frame), agent::Jump::arriving);
    EXPECT_EQ(frame.ip, probe.site());
    EXPECT_EQ(frame.sp, sp + (ip == thunk ? 0 : shared::kSkippedRedZone));
  }
  for (const u64 ip : {probe.slot() - 1, probe.slot(), probe.copy(), probe.copy() + 5}) {
    agent::SignalFrame frame{};
    frame.ip = ip, frame.sp = sp;
    EXPECT_EQ(agent::leave_trampoline(block, frame), agent::Jump::no);
    EXPECT_EQ(frame.ip, ip);
    EXPECT_EQ(agent::slot_around(block, ip).head, ip < probe.slot() ? nullptr : &probe.head());
  }
  EXPECT_EQ(agent::slot_around(block, probe.copy() + probe.block().point.copy_bytes).head, nullptr) << "after the copy";
  // Another slot has been made for the point: no hit arrives at this one.
  probe.block().point.copy += 0x1000;
  agent::SignalFrame frame{};
  frame.ip = thunk;
  EXPECT_EQ(agent::leave_trampoline(block, frame), agent::Jump::no);
}

TEST(Trampolines, OnlyTheirLoadsAreFixedUp) {
  OneEvent session(all_registers(), kAllRegisters, cpus(), kClaimed, 8192);
  JumpProbe probe(hit_site);
  probe.arm(session, true);
  const shared::ProcessBlock& block = probe.block().head;
  shared::BodyHead head;
  std::memcpy(&head, probe.body().bytes.data(), sizeof head);
  u32 found = 0;
  for (u32 i = 0; i < probe.body().bytes.size(); ++i) {
    const u64 to = agent::trampoline_fixup(block, probe.address() + i);
    if (to == 0) continue;
    ++found;
    EXPECT_TRUE(std::any_of(std::begin(head.faults), std::end(head.faults),
                            [&](const auto& fault) { return fault.insn == i && probe.address() + fault.fixup == to; }));
  }
  EXPECT_EQ(found, 3U);
  EXPECT_EQ(agent::trampoline_fixup(block, probe.copy()), 0U) << "the copy is not the body";
  EXPECT_EQ(agent::trampoline_fixup(block, word_of(&block)), 0U);
}

// A hit of the torture by the jump at hit_words: rdi = text, rsi = sequence, rdx = stream.
extern "C" {
void hit_words(const char* text, u64 sequence, u64 stream);
extern const char hit_words_site[];
}

void hit_by_jump(u64 sequence, u64 stream, const char* text) { hit_words(text, sequence, stream); }

TEST_P(Jump, Torture) {
  std::vector<Insn> program = torture_program();
  program[1].size = static_cast<u8>(Reg::si), program[4].size = static_cast<u8>(Reg::dx);
  OneEvent session(program, kTortureFixed, cpus(), 16, 1 << 20);
  JumpProbe probe(hit_words_site);
  probe.arm(session, fast());
  ASSERT_EQ(probe.body().records, fast());
  Torture torture(session, hit_by_jump);
  torture.run(torture_seconds());
  torture.expect_all_accounted_for();
}

}  // namespace
}  // namespace uprobe::test
