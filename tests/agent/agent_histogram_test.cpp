// SPDX-License-Identifier: MIT
// Histograms at a hit: each hit counts once, in spite of interruptions, kills and full tables; no damaged word is trusted.
#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <csignal>
#include <map>
#include <random>
#include <thread>

#include "engine/trace/histogram_copy.h"
#include "engine/trace/stack_copy.h"
#include "preload/ring.h"
#include "preload/stack_walk.h"
#include "preload/stubs.h"
#include "tests/agent/recording.h"

namespace uprobe::test {
namespace {

using program::HistogramPlan;
using program::HistogramWord;
using shared::HistogramSource;
using shared::Insn;
using shared::Op;
using shared::Reg;

constexpr u32 kClaimed = 4;
constexpr u64 kRing = 16384;

u32 cpus() { return static_cast<u32>(::sysconf(_SC_NPROCESSORS_CONF)); }

// ax at 16, di's string at 24.
std::vector<Insn> word_and_string() {
  return {
      {Op::begin, 0, 0, 0, 0}, {Op::load_register, static_cast<u8>(Reg::ax), 0, 0, 0}, {Op::store_value, 8, 0, 16, 0},
      {Op::begin, 0, 0, 0, 0}, {Op::load_register, static_cast<u8>(Reg::di), 0, 0, 0}, {Op::store_string, 4, 0, 24, 0},
      {Op::end, 0, 0, 0, 0}};
}

HistogramWord word(HistogramSource source, u32 offset = 0, u16 size = 0, u16 key_offset = 0) {
  HistogramWord made{.name = "x"};
  made.field.source = static_cast<u8>(source), made.field.offset = offset, made.field.size = size;
  made.field.key_offset = key_offset;
  return made;
}

HistogramPlan plan_of(std::vector<HistogramWord> keys, u32 key_bytes, u32 bits = shared::kMinHistogramBits) {
  return {.values = {{.name = "hitcount", .is_hitcount = true}, word(HistogramSource::number, 16, 8)},
          .keys = std::move(keys),
          .bits = bits,
          .key_bytes = key_bytes};
}

HistogramPlan by_number(u32 bits = shared::kMinHistogramBits) {
  return plan_of({word(HistogramSource::number, 16, 8)}, 8, bits);
}

std::map<u64, std::pair<u64, u64>> counted(OneEvent& session, std::size_t number = 0) {
  std::map<u64, std::pair<u64, u64>> found;
  for (const trace::HistogramEntry& entry : trace::copy_histogram(session.area().histogram(number)).entries)
    found[entry.key[0]] = {entry.sums[0], entry.sums[1]};
  return found;
}

u64 dropped(OneEvent& session) { return trace::copy_histogram(session.area().histogram(0)).dropped; }

std::string text_of(const trace::HistogramEntry& entry) { return reinterpret_cast<const char*>(entry.key.data()); }

class Histograms : public testing::Test {
 protected:
  void SetUp() override {
    install_agent_handlers();
    agent::learn_rseq(empty_block());
  }
  shared::Registers registers(u64 ax, const char* text = "") {
    shared::Registers r{};
    r[Reg::ax] = ax, r[Reg::di] = word_of(text), r[Reg::ip] = 0x1000;
    return r;
  }
  OneEvent session(std::vector<HistogramPlan> plans, u32 cpu_rings, u64 ring_bytes = kRing) {
    return OneEvent(word_and_string(), 28, cpu_rings, kClaimed, ring_bytes, {}, {}, {}, std::move(plans));
  }
};

TEST_F(Histograms, CountByBodyAndByAgent) {
  for (const u32 cpu_rings : {cpus(), 0u}) {
    OneEvent events = session({by_number()}, cpu_rings);
    for (u64 i = 0; i < 90; ++i) events.hit(registers(i % 3));
    EXPECT_EQ(counted(events), (std::map<u64, std::pair<u64, u64>>{{0, {30, 0}}, {1, {30, 30}}, {2, {30, 60}}}));
    EXPECT_EQ(events.records_from(0, events.area().ring_count()), 90U);
  }
}

TEST_F(Histograms, AFullRingLosesRecordsOnly) {
  for (const bool no_rseq : {false, true}) {
    OneEvent events = session({by_number()}, cpus(), shared::kMinRingBytes);
    for (u64 i = 0; i < 2000; ++i) events.hit(registers(i % 5, "some text"), no_rseq);
    EXPECT_GT(events.counts().lost_full, 0U);
    for (const auto& [key, sums] : counted(events)) EXPECT_EQ(sums, std::make_pair(u64{400}, 400 * key));
    EXPECT_EQ(dropped(events), 0U);
  }
}

TEST_F(Histograms, WhoFindsNoRingIsMissingAndCounted) {
  OneEvent events = session({by_number()}, 0);
  for (u32 i = 0; i < kClaimed; ++i) events.area().ring(i).owner = 1;
  for (int i = 0; i < 7; ++i) events.hit(registers(1));
  EXPECT_EQ(dropped(events), 7U);
  EXPECT_EQ(events.counts().lost_busy, 7U);
  EXPECT_TRUE(counted(events).empty());
}

TEST_F(Histograms, AFullMapCountsWhatItKnows) {
  OneEvent events = session({by_number()}, cpus());
  for (u64 round = 0; round < 3; ++round)
    for (u64 i = 0; i < 1000; ++i) events.hit(registers(i));
  const auto found = counted(events);
  EXPECT_EQ(found.size(), 128U);
  for (const auto& [key, sums] : found) EXPECT_EQ(sums.first, 3U) << key;
  EXPECT_EQ(dropped(events), 3U * (1000 - 128));
}

TEST_F(Histograms, StringsAreKeysAsFarAsTheyFit) {
  OneEvent events = session({plan_of({word(HistogramSource::text, 24)}, shared::kHistogramText)}, cpus());
  const std::string shared_part(255, 'x');
  for (const std::string& text : {shared_part + "1", shared_part + "2", std::string("short"), std::string()})
    events.hit(registers(1, text.c_str()));
  events.hit(registers(1, reinterpret_cast<const char*>(8)));
  std::map<std::string, u64> found;
  for (const auto& entry : trace::copy_histogram(events.area().histogram(0)).entries)
    found[text_of(entry)] = entry.sums[0];
  EXPECT_EQ(found, (std::map<std::string, u64>{{shared_part, 2}, {"short", 1}, {"", 1}, {"(fault)", 1}}));
}

TEST_F(Histograms, NumbersAreGrouped) {
  HistogramPlan powers = by_number(), buckets = by_number(), small = plan_of({word(HistogramSource::number, 16, 1)}, 8);
  powers.keys[0].field.group = static_cast<u8>(shared::HistogramGroup::log2);
  buckets.keys[0].field.group = static_cast<u8>(shared::HistogramGroup::buckets), buckets.keys[0].field.width = 10;
  small.keys[0].field.is_signed = 1;
  OneEvent events = session({powers, buckets, small}, cpus());
  for (const u64 value : {u64{0}, u64{1}, u64{2}, u64{3}, u64{1023}, u64{1025}, ~u64{0}}) events.hit(registers(value));
  const auto hits = [&](std::size_t number) {
    std::map<u64, u64> found;
    for (const auto& [key, sums] : counted(events, number)) found[key] = sums.first;
    return found;
  };
  EXPECT_EQ(hits(0), (std::map<u64, u64>{{0, 2}, {1, 1}, {2, 1}, {10, 1}, {11, 1}, {64, 1}}));
  EXPECT_EQ(hits(1), (std::map<u64, u64>{{0, 4}, {1020, 2}, {~u64{0} - 5, 1}}));
  EXPECT_EQ(hits(2), (std::map<u64, u64>{{0, 1}, {1, 2}, {2, 1}, {3, 1}, {~u64{0}, 2}}));
}

// A timer restarts sections at any instruction.
TEST_F(Histograms, ThreadsAndInterruptionsAddUp) {
  constexpr u64 kThreads = 6, kHits = 20000, kKeys = 300;
  OneEvent events = session({by_number(9), plan_of({word(HistogramSource::cpu)}, 8)}, cpus());
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 50}, {0, 50}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  std::vector<std::thread> threads;
  for (u64 t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (u64 i = 0; i < kHits; ++i) events.hit(registers((i + t) % kKeys), i % 7 == 0 && t == 0);
    });
  for (std::thread& thread : threads) thread.join();
  ::setitimer(ITIMER_REAL, &never, nullptr);
  u64 sum = 0;
  for (const auto& [key, sums] : counted(events)) {
    EXPECT_EQ(sums.second, sums.first * key);
    sum += sums.first;
  }
  EXPECT_EQ(sum + dropped(events), kThreads * kHits);
  EXPECT_EQ(dropped(events), events.counts().lost_busy);
  EXPECT_EQ(counted(events).size(), kKeys);
  u64 by_cpu = 0;
  for (const auto& [cpu, sums] : counted(events, 1)) by_cpu += sums.first;
  EXPECT_EQ(by_cpu, sum);
}

// The slots that a killed writer leaves claimed keep no other writer from counting.
TEST_F(Histograms, KilledWritersLeaveATableThatWorks) {
  OneEvent events = session({by_number()}, cpus());
  for (int round = 0; round < 40; ++round) {
    const pid_t child = ::fork();
    if (child == 0)
      for (u64 i = 0;; ++i) events.hit(registers(i % 100));
    ::usleep(static_cast<useconds_t>(200 + 37 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  const auto before = counted(events);
  const u64 lost = dropped(events);
  for (u64 i = 0; i < 100; ++i) events.hit(registers(i));
  const auto after = counted(events);
  ASSERT_EQ(dropped(events), lost);
  ASSERT_EQ(after.size(), 100U);
  u64 torn = 0;
  for (const auto& [key, sums] : after) {
    const auto known = before.find(key);
    EXPECT_EQ(sums.first, (known == before.end() ? 0 : known->second.first) + 1);
    torn += sums.second != sums.first * key ? 1 : 0;
  }
  EXPECT_LE(torn, 40U);
}

TEST_F(Histograms, AbandonedSlotsAreSkipped) {
  OneEvent events = session({by_number()}, cpus());
  events.hit(registers(5));
  auto* slots = const_cast<shared::HistogramSlot*>(events.area().histogram(0).slots);
  for (u32 i = 0; i < events.area().histogram(0).slot_count; ++i)
    if (slots[i] != 0) slots[i] = (slots[i] & ~u64{0xffffffff}) | shared::kSlotClaimed;
  events.hit(registers(5));
  EXPECT_EQ(counted(events), (std::map<u64, std::pair<u64, u64>>{{5, {1, 5}}}));
  for (u32 i = 0; i < events.area().histogram(0).slot_count; ++i) slots[i] = slots[i] == 0 ? 1 : slots[i];
  events.hit(registers(6));
  EXPECT_EQ(dropped(events), 1U);
}

// With any contents of the table hits come back, and the tool reads something.
TEST_F(Histograms, NothingIsBelieved) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 3000; ++round) {
    OneEvent events = session(
        {by_number(), plan_of({word(HistogramSource::text, 24), word(HistogramSource::stack, 0, 0, 256)}, 1280)},
        cpus(), shared::kMinRingBytes);
    agent::AreaHeader* const header = events.header();
    auto* const table = reinterpret_cast<u64*>(static_cast<u8*>(events.area().base()) + header->histogram_offset);
    for (int i = 0; i < 4; ++i) table[random() % 48] = random() >> random() % 64;
    auto* const counts = reinterpret_cast<u64*>(&events.area().live(0).histogram_counts(0));
    for (int i = 0; i < 4; ++i) counts[random() % 16] = random() >> random() % 64;
    auto* const slots = const_cast<u64*>(events.area().histogram(0).slots);
    for (int i = 0; i < 20; ++i) slots[random() % 256] = random() >> random() % 64;
    if (random() % 8 == 0) header->histogram_count = static_cast<u32>(random());
    if (random() % 8 == 0) header->scratch_offset = static_cast<u32>(random());
    for (u64 i = 0; i < 8; ++i) events.hit(registers(i, "text"));
    static_cast<void>(trace::copy_histogram(events.area().histogram(0)));
    static_cast<void>(trace::copy_histogram(events.area().histogram(1)));
  }
}

TEST_F(Histograms, TwoEntriesOfOneKeyAreOne) {
  OneEvent events = session({by_number()}, cpus());
  events.hit(registers(5));
  events.hit(registers(6));
  auto* entries = reinterpret_cast<u64*>(const_cast<u8*>(events.area().histogram(0).entries));
  // hits, sum, key. A thread that is preempted while it takes an entry leaves that one empty and takes the next.
  constexpr u64 kLooked = 8;
  for (u64 i = 0; i < kLooked; ++i)
    if (entries[3 * i + 2] == 6) entries[3 * i + 2] = 5;
  EXPECT_EQ(counted(events), (std::map<u64, std::pair<u64, u64>>{{5, {2, 11}}}));
}

class Stacks : public Histograms {
 protected:
  // Frames of `count` words each in memory with an end: link, return address.
  u32 walk(u64 sp, u64 bp, bool at_entry = false, u32 most = shared::kMaxFrames) {
    shared::Registers r{};
    r[Reg::sp] = sp, r[Reg::bp] = bp, r[Reg::ip] = 0x1000;
    const shared::Point point{};
    const agent::Hit hit{agent::uprobe_block, &point, &r, 1, true, true};
    shared::Event event{};
    event.flags = at_entry ? shared::kEventAtEntry : 0;
    frames_.assign(most, 0);
    return agent::walk_stack(hit, event, frames_.data(), most);
  }
  std::vector<u64> frames_;
};

TEST_F(Stacks, FollowTheChainUpwards) {
  u64 stack[16] = {};
  stack[0] = 0x2000;                                 // the return address of a hit at the entry
  stack[2] = word_of(&stack[6]), stack[3] = 0x3000;  // a frame
  stack[6] = 0, stack[7] = 0x4000;                   // the last
  EXPECT_EQ(walk(word_of(stack), word_of(&stack[2])), 3U);
  EXPECT_EQ(frames_[1], 0x3000U);
  EXPECT_EQ(frames_[2], 0x4000U);
  EXPECT_EQ(walk(word_of(stack), word_of(&stack[2]), true), 4U);
  EXPECT_EQ(frames_[1], 0x2000U);
  EXPECT_EQ(walk(word_of(stack), word_of(&stack[2]), true, 2), 2U);
}

TEST_F(Stacks, EndWhereALinkLeadsNowhere) {
  u64 stack[16] = {};
  for (u64& word : stack) word = 0x5000;
  const u64 sp = word_of(stack);
  for (const u64 bp : {u64{0}, u64{5}, sp - 8, sp + 4, sp + (u64{1} << 21), ~u64{0}, ~u64{0} - 15, u64{1} << 63})
    EXPECT_EQ(walk(sp, bp), 1U) << std::hex << bp;
  stack[2] = word_of(&stack[2]);  // its own
  EXPECT_EQ(walk(sp, word_of(&stack[2])), 2U);
  stack[2] = word_of(&stack[0]);  // down
  EXPECT_EQ(walk(sp, word_of(&stack[2])), 2U);
}

TEST_F(Stacks, EndWhereMemoryDoes) {
  HoleyMemory memory(1);
  u64* const last = reinterpret_cast<u64*>(memory.begin() + kPage) - 1;
  const u64 sp = word_of(memory.begin());
  EXPECT_EQ(walk(sp, word_of(last)), 1U);
  last[-1] = word_of(last + 8), last[0] = 0x3000;
  EXPECT_EQ(walk(sp, word_of(last - 1)), 2U);
  EXPECT_EQ(walk(word_of(last + 1), 0, true), 1U);
}

TEST_F(Stacks, AreAsLongAsThereIsRoom) {
  std::vector<u64> stack(400);
  for (std::size_t i = 0; i + 2 < stack.size(); i += 2) stack[i] = word_of(&stack[i + 2]), stack[i + 1] = 0x6000 + i;
  EXPECT_EQ(walk(word_of(stack.data()), word_of(stack.data())), shared::kMaxFrames);
  EXPECT_EQ(frames_.back(), 0x6000 + 2 * (shared::kMaxFrames - 2));
}

class StackCopies : public Histograms {
 protected:
  // The recorded stack of a hit with this stack pointer.
  trace::StackCopy record(u64 sp, u32 limit = shared::kMaxStackCopy, bool may_fault = true) {
    shared::Registers r{};
    for (u32 i = 0; i < shared::kRegCount; ++i) r.value[i] = 0x100 + i;
    r[Reg::sp] = sp;
    const shared::Point point{};
    const agent::Hit hit{agent::uprobe_block, &point, &r, 1, may_fault, true};
    bytes_.assign(shared::kMaxStack + 8, 0xcc);
    const u32 used = agent::record_stack(hit, shared::Event{}, bytes_.data(), limit);
    EXPECT_EQ(bytes_[used], 0xcc) << "nothing after it is written";
    const auto found = trace::parse_stack(std::span(bytes_).first(used));
    EXPECT_TRUE(found);
    return found.value_or(trace::StackCopy{});
  }
  std::vector<std::uint8_t> bytes_;
};

TEST_F(StackCopies, HoldRegistersAndTheStackWithItsRedZone) {
  std::vector<u64> stack(4096, 7);
  stack[15] = 21, stack[16] = 22, stack[17] = 23;
  const trace::StackCopy copy = record(word_of(&stack[32]) + 3, 512);
  EXPECT_EQ(copy[Reg::ip], 0x100 + static_cast<u64>(Reg::ip));
  EXPECT_EQ(copy[Reg::r15], 0x100 + static_cast<u64>(Reg::r15));
  ASSERT_EQ(copy.begin, word_of(&stack[16]));
  EXPECT_EQ(copy.bytes.size(), 512U);
  EXPECT_EQ(copy.word_at(word_of(&stack[15])), std::nullopt);
  EXPECT_EQ(copy.word_at(word_of(&stack[16])), 22U);
  EXPECT_EQ(copy.word_at(word_of(&stack[17])), 23U);
}

TEST_F(StackCopies, EndWhereTheStackDoes) {
  HoleyMemory memory(2);
  const u64 end = word_of(memory.end());
  EXPECT_EQ(record(end - 256).bytes.size(), 256U + 128);
  EXPECT_EQ(record(end - 8).bytes.size(), 8U + 128);
  EXPECT_EQ(record(word_of(memory.begin())).begin, word_of(memory.begin())) << "there is no red zone";
  EXPECT_EQ(record(word_of(memory.begin()) - 64).bytes.size(), 0U);
  EXPECT_EQ(record(end).bytes.size(), 128U);
  for (const u64 sp : {u64{0}, u64{64}, ~u64{0}, u64{1} << 63, ~u64{0} - 127})
    EXPECT_EQ(record(sp).bytes.size(), 0U) << sp;
  EXPECT_EQ(record(end - 256, shared::kMaxStackCopy, false).bytes.size(), 0U) << "a fault would kill";
  agent::uprobe_block->stack_end = end - 128;
  EXPECT_EQ(record(end - 256).bytes.size(), 256U);
  EXPECT_EQ(record(end - 64).bytes.size(), 64U + 128) << "another stack";
  agent::uprobe_block->stack_end = 0;
}

TEST_F(StackCopies, StubsShowAsWhatTheyStandFor) {
  constexpr u32 kNumber = 5;
  agent::uprobe_return_slots[kNumber].root = 0x4242;
  agent::uprobe_block->flags |= shared::kBlockHasStubs;
  u64 stack[64] = {};
  stack[20] = word_of(agent::uprobe_return_stubs) + kNumber * shared::kStubUnit + 1;
  stack[21] = word_of(agent::uprobe_return_stubs) + shared::kReturnStubs * u64{shared::kStubUnit};
  const trace::StackCopy copy = record(word_of(&stack[16]), 512);
  EXPECT_EQ(copy.word_at(word_of(&stack[20])), 0x4242U);
  EXPECT_EQ(copy.word_at(word_of(&stack[21])), stack[21]) << "after the last";
  agent::uprobe_return_slots[kNumber].root = 0;
  agent::uprobe_block->flags &= ~shared::kBlockHasStubs;
}

}  // namespace
}  // namespace uprobe::test
