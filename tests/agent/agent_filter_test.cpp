// SPDX-License-Identifier: MIT
// Filters at a hit: by the body over registers, by the body over the record, by the agent. All three let the same hits pass,
// leave nothing of the others in a ring and count them; the program notices nothing.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <optional>
#include <thread>

#include "tests/agent/hit_state.h"
#include "tests/agent/jump_probe.h"

namespace uprobe::test {
namespace {

using shared::Insn;
using shared::Op;
using shared::Reg;
using shared::Test;
using shared::TestOp;

constexpr u32 kClaimed = 2;
constexpr u8 kSizes[] = {8, 8, 4, 4, 2, 2, 1, 1};  // of the fields, from registers in turn
constexpr Reg kRegisters[] = {Reg::di, Reg::bx, Reg::si, Reg::r9, Reg::dx, Reg::r15, Reg::ax, Reg::bp};

u32 cpus() { return static_cast<u32>(::sysconf(_SC_NPROCESSORS_CONF)); }

Insn insn(Op op, u8 size = 0, u16 count = 0, u32 offset = 0, u64 immediate = 0) {
  return {op, size, count, offset, immediate};
}
Test test(TestOp op, u8 size, u16 target, u32 offset, u64 value) { return {op, size, target, offset, value}; }
Test end(TestOp op) { return {op, 0, 0, 0, 0}; }

struct Fields {
  std::vector<Insn> program;
  std::vector<u32> offsets;
  u32 fixed = 16;
};

// `by_memory`: the same values, but fetched in a way that only the record shows.
Fields fields(bool by_memory) {
  Fields made;
  for (std::size_t i = 0; i < std::size(kSizes); ++i) {
    made.program.push_back(insn(Op::begin));
    made.program.push_back(insn(Op::load_register, static_cast<u8>(kRegisters[i])));
    made.program.push_back(insn(Op::store_value, kSizes[i], 0, made.fixed));
    made.offsets.push_back(made.fixed);
    made.fixed += kSizes[i];
  }
  if (by_memory) {
    for (const Insn& more :
         {insn(Op::begin), insn(Op::load_register, static_cast<u8>(Reg::sp)), insn(Op::store_memory, 0, 8, made.fixed)})
      made.program.push_back(more);
    made.fixed += 8;
  }
  made.program.push_back(insn(Op::end));
  return made;
}

// With `always` the filter tests the record, but holds for any.
std::vector<Test> random_filter(std::mt19937_64& random, const Fields& made, const HitState& in, bool in_record) {
  constexpr u32 kOrder[] = {5, 1, 4, 8, 3, 14, 0, 6};  // of kRegisters in HitState
  std::vector<Test> tests;
  const u16 count = static_cast<u16>(1 + random() % 6);
  const u16 first = in_record ? 1 : 0;
  if (in_record) tests.push_back(test(TestOp::not_below, 8, 1, made.fixed - 8, 0));
  for (u16 i = 0; i < count; ++i) {
    const std::size_t field = random() % std::size(kSizes);
    const u64 now = in.registers[kOrder[field]];
    const u64 value = random() % 3 == 0 ? now : random() % 2 == 0 ? now + random() % 3 - 1 : random() >> random() % 64;
    const auto op = static_cast<TestOp>(static_cast<u8>(TestOp::equal) + random() % 12);
    const u16 at = static_cast<u16>(first + i);
    const u16 target = static_cast<u16>(at + 1 + random() % (count - i + 1));
    tests.push_back(test(random() % 12 == 0 ? TestOp::go_on : op, kSizes[field], target, made.offsets[field], value));
  }
  tests.push_back(end(TestOp::pass));
  tests.push_back(end(TestOp::drop));
  return tests;
}

// Keeps the thread on its processor: a record that a thread leaves unfinished when it moves to another one is made again there, and
// the ring of the first counts it as begun until the next record comes.
class OnThisProcessor {
 public:
  OnThisProcessor() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    EXPECT_EQ(::sched_getaffinity(0, sizeof before_, &before_), 0);
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OnThisProcessor() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OnThisProcessor(const OnThisProcessor&) = delete;
  OnThisProcessor& operator=(const OnThisProcessor&) = delete;

 private:
  cpu_set_t before_{};
};

bool no_ring_is_being_written(OneEvent& session) {
  for (u32 i = 0; i < session.area().ring_count(); ++i)
    if (session.area().is_being_written(i)) return false;
  return true;
}

class Filters : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx()) GTEST_SKIP() << "no AVX here";
    install_agent_handlers();
    if (point_block().head.rseq_offset == 0) GTEST_SKIP() << "no rseq here";
  }
};

// Whether a hit passes; it is recorded or counted, and nothing else happens.
std::optional<bool> passes(OneEvent& session, const HitState& in) {
  const OnThisProcessor stay;
  const u64 recorded = session.records_from(0, session.area().ring_count()), dropped = session.area().dropped(0);
  HitState out{};
  hit_check(&in, &out);
  HitState expected = in;
  expected.registers[1] += 1;
  EXPECT_EQ(std::memcmp(&out, &expected, sizeof out), 0);
  EXPECT_TRUE(no_ring_is_being_written(session));
  const u64 more = session.records_from(0, session.area().ring_count()) - recorded;
  EXPECT_EQ(more + session.area().dropped(0) - dropped, 1U);
  return more == 1;
}

TEST_F(Filters, TheSameHitsPassInBodyAndAgent) {
  std::mt19937_64 random(3);
  int passed = 0, dropped = 0;
  for (int round = 0; round < 600; ++round) {
    const bool in_record = round % 2 == 1;
    const Fields made = fields(in_record);
    const HitState in = make_state(random(), kArithmetic);
    OneEvent session(made.program, made.fixed, cpus(), kClaimed, 16384, random_filter(random, made, in, in_record));
    JumpProbe probe(hit_site);
    probe.arm(session, true);
    ASSERT_TRUE(probe.body().records);
    const auto ours = passes(session, in);
    probe.arm(session, false);
    const auto reference = passes(session, in);
    ASSERT_EQ(ours, reference) << round;
    (*ours ? passed : dropped) += 1;
  }
  EXPECT_GT(passed, 100);
  EXPECT_GT(dropped, 100);
}

constexpr u32 kArgument = 16;

std::vector<Insn> one_register(Reg reg) {
  return {insn(Op::begin), insn(Op::load_register, static_cast<u8>(reg)), insn(Op::store_value, 8, 0, kArgument),
          insn(Op::end)};
}

// Passes equal values.
std::vector<Test> equal(u8 size, u32 offset, u64 value) {
  return {test(TestOp::not_equal, size, 2, offset, value), end(TestOp::pass), end(TestOp::drop)};
}

TEST_F(Filters, ADroppedHitIsNotNoticed) {
  for (const bool fast : {true, false}) {
    OneEvent session(one_register(Reg::flags), kArgument + 8, cpus(), kClaimed, 16384, equal(8, kArgument, 0));
    JumpProbe probe(hit_site);
    probe.arm(session, fast);
    ASSERT_EQ(probe.body().records, fast);
    u64 hits = 0;
    for (u64 seed = 0; seed < 20; ++seed)
      for (const u64 flags : kFlagSets) {
        EXPECT_TRUE(passes_unnoticed(seed, flags)) << seed << " " << std::hex << flags;
        ++hits;
      }
    EXPECT_EQ(session.area().dropped(0), hits);
    EXPECT_EQ(session.records_from(0, session.area().ring_count()), 0U);
  }
}

TEST_F(Filters, AFullRingDropsBeforeItLoses) {
  OneEvent session(one_register(Reg::di), kArgument + 8, cpus(), kClaimed, 8192, equal(8, kArgument, ~u64{5}));
  JumpProbe probe(hit_site);
  probe.arm(session, true);
  for (u32 i = 0; i < cpus(); ++i) session.area().ring(i).tail = 1024;  // as if the position were 1024 units earlier
  EXPECT_TRUE(passes_unnoticed(1, kArithmetic));
  EXPECT_EQ(session.area().dropped(0), 1U);
  EXPECT_EQ(session.counts().lost_full, 0U);
}

TEST_F(Filters, WithoutRseqTheAgentDrops) {
  const OnThisProcessor stay;
  OneEvent session(one_register(Reg::di), kArgument + 8, cpus(), kClaimed, 16384, equal(8, kArgument, ~u64{5}));
  JumpProbe probe(hit_site);
  probe.arm(session, true);
  probe.block().head.rseq_offset = 0, probe.block().head.own_rseq = 0;
  EXPECT_TRUE(passes_unnoticed(1, kArithmetic));
  EXPECT_EQ(session.area().dropped(0), 1U);
  EXPECT_TRUE(no_ring_is_being_written(session));
}

std::vector<Test> names(const char* text, std::string& pool) {
  pool = text;
  const u64 value = u64{pool.size()} << 32;
  return {test(TestOp::not_text, static_cast<u8>(shared::TextMatch::full), 2, shared::kTestName, value),
          end(TestOp::pass), end(TestOp::drop)};
}

// The name needs a system call, made outside of the section; if none may be made the reader decides.
TEST_F(Filters, TheTasksName) {
  char name[shared::kNameBytes] = {};
  ASSERT_EQ(::prctl(PR_GET_NAME, name), 0);
  for (const char* wanted : {static_cast<const char*>(name), "another"}) {
    std::string pool;
    const auto tests = names(wanted, pool);
    OneEvent session(one_register(Reg::di), kArgument + 8, cpus(), kClaimed, 16384, tests, pool);
    JumpProbe probe(hit_site);
    probe.arm(session, true);
    EXPECT_FALSE(probe.body().records);
    EXPECT_TRUE(passes_unnoticed(1, kArithmetic));
    EXPECT_EQ(session.area().dropped(0), wanted == name ? 0U : 1U);
    probe.block().head.flags |= shared::kBlockFiltered;
    EXPECT_TRUE(passes_unnoticed(1, kArithmetic));
    probe.block().head.flags &= ~shared::kBlockFiltered;
    EXPECT_EQ(session.area().dropped(0), wanted == name ? 0U : 1U) << "the reader's business";
    EXPECT_EQ(session.records_from(0, session.area().ring_count()), wanted == name ? 2U : 1U);
  }
}

// If no name may be fetched a trigger does nothing, which is counted; if the tests do not reach the name it acts.
TEST_F(Filters, ATriggerThatAsksForTheTasksName) {
  const OnThisProcessor stay;
  char name[shared::kNameBytes] = {};
  ASSERT_EQ(::prctl(PR_GET_NAME, name), 0);
  for (const u64 wanted : {u64{0}, u64{7}}) {
    std::string pool;
    program::TriggerProgram traceoff{.kind = shared::TriggerKind::trace_off, .condition = {.tests = names(name, pool)}};
    traceoff.condition.text = pool;
    for (shared::Test& one : traceoff.condition.tests) one.target = one.target != 0 ? 3 : 0;
    traceoff.condition.tests.insert(traceoff.condition.tests.begin(), test(TestOp::equal, 8, 2, kArgument, wanted));
    OneEvent session(one_register(Reg::di), kArgument + 8, cpus(), kClaimed, 16384, {}, {}, {traceoff});
    JumpProbe probe(hit_site);
    probe.arm(session, false);
    HitState in = make_state(1, kArithmetic), out{};
    in.registers[5] = 7;
    probe.block().head.flags |= shared::kBlockFiltered;
    hit_check(&in, &out);
    EXPECT_EQ(session.counts().unavailable, wanted == 7 ? 0U : 1U);
    EXPECT_EQ(session.area().live(0).header().tracing, wanted == 7 ? shared::kSwitchOff : shared::kSwitchOn);
    probe.block().head.flags &= ~shared::kBlockFiltered;
    hit_check(&in, &out);
    EXPECT_EQ(session.counts().unavailable, wanted == 7 ? 0U : 1U);
    EXPECT_EQ(session.area().live(0).header().tracing, shared::kSwitchOff);
    EXPECT_TRUE(no_ring_is_being_written(session));
  }
}

TEST_F(Filters, TestsThatMakeNoSenseLetEverythingPass) {
  for (const shared::Test& odd : {test(TestOp::equal, 9, 2, kArgument, 0), test(TestOp::equal, 8, 0, kArgument, 0),
                                  test(static_cast<TestOp>(77), 8, 2, kArgument, 0), test(TestOp::equal, 8, 2, 5000, 0),
                                  test(TestOp::text, 0, 2, kArgument, ~u64{0})}) {
    OneEvent session(one_register(Reg::di), kArgument + 8, cpus(), kClaimed, 16384,
                     {odd, end(TestOp::drop), end(TestOp::pass)});
    JumpProbe probe(hit_site);
    probe.arm(session, true);
    EXPECT_FALSE(probe.body().records && odd.op != TestOp::equal);
    HitState in = make_state(1, kArithmetic);
    in.registers[5] = 0;
    EXPECT_EQ(passes(session, in), true) << static_cast<int>(odd.op);
  }
}

// Threads that move about, interrupted by alarms whose handlers hit as well: each hit is recorded or counted, once.
std::atomic<u64> g_hits;

void hit_once(u64 value) {
  HitState in = make_state(1, kArithmetic), out{};
  in.registers[5] = value;
  hit_check(&in, &out);
  ++g_hits;
}

// uprobe_jump_entry first checks that so much stack is there (arch/x86/entry/jump.S).
TEST_F(Filters, StackUseIsBounded) {
  constexpr u32 kLookedFor = 2048 - 128 + sizeof(shared::TrampolineFrame) + 8;
  std::vector<Insn> program = one_register(Reg::sp);
  program.insert(program.end() - 1, {insn(Op::begin), insn(Op::load_register, static_cast<u8>(Reg::di)),
                                     insn(Op::store_string, 4, 0, 24)});
  const std::string wanted = "*t*t*x";
  const auto glob = static_cast<u8>(shared::TextMatch::glob);
  const u64 place = u64{wanted.size()} << 32;
  const std::vector<shared::Test> tests = {test(TestOp::text, glob, 2, 24, place),
                                           test(TestOp::not_text, glob, 3, shared::kTestName, place), end(TestOp::drop),
                                           end(TestOp::pass)};
  const program::TriggerProgram traceoff{
      .kind = shared::TriggerKind::trace_off,
      .condition = {.tests = {test(TestOp::not_text, glob, 2, 24, place), end(TestOp::pass), end(TestOp::drop)},
                    .text = wanted}};
  program::TriggerProgram by_name = traceoff;
  by_name.condition.tests[0].offset = shared::kTestName;
  program::TriggerProgram stack{.kind = shared::TriggerKind::stack, .count = 5, .condition = traceoff.condition};
  program::HistogramWord text_key{.name = "s"}, frames_key{.name = "f"};
  text_key.field.source = static_cast<u8>(shared::HistogramSource::text), text_key.field.offset = 24;
  frames_key.field.source = static_cast<u8>(shared::HistogramSource::stack), frames_key.field.key_offset = 256;
  program::HistogramWord name_key{.name = "common_comm"};
  name_key.field.source = static_cast<u8>(shared::HistogramSource::task_name), name_key.field.key_offset = 1024;
  program::HistogramWord lower_frames = frames_key;
  lower_frames.field.key_offset = 0;
  const program::HistogramPlan named{.values = {{.name = "hitcount", .is_hitcount = true}},
                                     .keys = {lower_frames, name_key},
                                     .bits = 7,
                                     .key_bytes = 1040};
  const program::HistogramPlan plan{.values = {{.name = "hitcount", .is_hitcount = true}},
                                    .keys = {text_key, frames_key},
                                    .bits = 7,
                                    .key_bytes = 1280};
  struct Case {
    const char* what;
    std::vector<program::TriggerProgram> triggers;
    std::vector<program::HistogramPlan> plans;
  };
  const Case cases[] = {{"", {}, {}},
                        {" and a trigger", {traceoff}, {}},
                        {" and histograms", {}, {plan, plan, plan, plan}},
                        {", triggers, histograms and stacks", {traceoff, stack}, {plan}},
                        {", triggers and histograms that ask for the name", {by_name, stack}, {named, plan}}};
  for (const Case& with : cases) {
    OneEvent session(program, kArgument + 12, cpus(), kClaimed, 16384, tests, wanted, with.triggers, with.plans);
    JumpProbe probe(hit_site);
    probe.arm(session, with.triggers.empty() && with.plans.empty());
    const std::string text(300, 't');
    HitState in = make_state(1, 0), out{};
    in.registers[5] = word_of(text.c_str());
    if (agent::uprobe_block->code_file_count == 0) list_own_code(*agent::uprobe_block);
    ++agent::uprobe_block->code_changes;  // unwind tables are read again
    hit_check(&in, &out);
    u64 sp = 0;
    for (u32 i = 0; i < session.area().ring_count(); ++i)
      if (session.records(i) != 0) std::memcpy(&sp, session.area().data(i) + sizeof(shared::RecordHead) + kArgument, 8);
    ASSERT_NE(sp, 0U);
    const u32 used = stack_use(in, sp);
    std::printf("stack below the red zone, with a filter%s: %u bytes\n", with.what, used);
    EXPECT_LE(used, kLookedFor);
  }
}

// Only the trigger turns the session off, and only this thread on again: each turn is one of the count.
TEST_F(Filters, ATriggerTurnsItsSwitchAsOftenAsItMay) {
  constexpr u64 kTurns = 50;
  const program::TriggerProgram traceoff{.kind = shared::TriggerKind::trace_off, .count = kTurns, .condition = {}};
  OneEvent session(one_register(Reg::di), kArgument + 8, cpus(), 16, 1 << 20, {}, {}, {traceoff});
  JumpProbe probe(hit_site);
  probe.arm(session, false);
  g_hits = 0;
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (u32 t = 0; t < cpus() + 1; ++t)
    threads.emplace_back([&] {
      while (!done) hit_once(1);
    });
  u64 turns = 0;
  u32& tracing = session.area().live(0).header().tracing;
  while (turns < kTurns)
    if (__atomic_exchange_n(&tracing, shared::kSwitchOn, __ATOMIC_ACQ_REL) == shared::kSwitchOff) ++turns;
  for (int i = 0; i < 1000; ++i) hit_once(1);
  EXPECT_EQ(__atomic_load_n(&tracing, __ATOMIC_ACQUIRE), shared::kSwitchOn) << "none is left";
  done = true;
  for (std::thread& thread : threads) thread.join();
  const shared::EventCounts& event = session.counts();
  EXPECT_EQ(session.records_from(0, session.area().ring_count()) + event.disabled + event.lost_full + event.lost_busy,
            g_hits);
}

// Threads that move about, interrupted by alarms whose handlers hit as well: each hit is recorded or counted, once.
TEST_F(Filters, EachHitOfManyThreadsCountsOnce) {
  for (const bool in_record : {false, true}) {
    const Fields made = fields(in_record);
    std::vector<shared::Test> tests = equal(8, made.offsets[0], 7);
    if (in_record)
      tests = {test(TestOp::not_equal, 8, 3, made.offsets[0], 7), test(TestOp::not_below, 8, 2, made.fixed - 8, 0),
               end(TestOp::pass), end(TestOp::drop)};
    OneEvent session(made.program, made.fixed, cpus(), 16, 1 << 20, tests);
    JumpProbe probe(hit_site);
    probe.arm(session, true);
    ASSERT_TRUE(probe.body().records);
    g_hits = 0;
    const auto before = ::signal(SIGALRM, [](int) { hit_once(8); });
    const itimerval pace{{0, 150}, {0, 150}};
    ::setitimer(ITIMER_REAL, &pace, nullptr);
    std::vector<std::thread> threads;
    for (u32 t = 0; t < 2 * cpus() + 1; ++t)
      threads.emplace_back([] {
        for (u64 i = 0; i < 60'000; ++i) hit_once(i % 1024 == 0 ? 7 : i);
      });
    for (std::thread& thread : threads) thread.join();
    const itimerval none{};
    ::setitimer(ITIMER_REAL, &none, nullptr);
    ::signal(SIGALRM, before);
    const u64 recorded = session.records_from(0, session.area().ring_count());
    EXPECT_EQ(recorded + session.area().dropped(0) + session.counts().lost_full + session.counts().lost_busy, g_hits);
    EXPECT_GE(recorded, (2 * cpus() + 1) * (60'000 / 1024));
    EXPECT_EQ(session.counts().lost_full, 0U);
  }
}

}  // namespace
}  // namespace uprobe::test
