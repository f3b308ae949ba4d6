// SPDX-License-Identifier: MIT
// Entry records, written at entries and taken at returns: a value is the call's own, or missing.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/agent/recording.h"

namespace uprobe::test {
namespace {

using agent::EntryRecord;
using shared::Insn;
using shared::Op;
using shared::Reg;
using shared::Registers;

// An event whose returns want %di and the word at %si, both from the entry.
class Session {
 public:
  Session() {
    program_.layout.is_return = true;
    program_.layout.fixed_bytes = 24;
    program_.insns = {{Op::end, 0, 0, 0, 0}};
    program_.noted.fixed_bytes = 32;
    program_.note = {{Op::begin, 0, 0, 0, 0},
                     {Op::load_register, static_cast<u8>(Reg::di), 0, 0, 0},
                     {Op::store_value, 8, 0, 16, 0},
                     {Op::begin, 0, 0, 0, 0},
                     {Op::load_register, static_cast<u8>(Reg::si), 0, 0, 0},
                     {Op::store_memory, 0, 8, 24, 0},
                     {Op::end, 0, 0, 0, 0}};
    const trace::AreaSpec spec{.events = {&program_, &program_}, .ring_bytes = 8192, .ring_count = 1};
    area_.emplace(trace::Area::create_private(spec).take());
    area_->header().tick_rate = u64{1} << 31;  // half a nanosecond
  }
  agent::AreaHeader* header() { return static_cast<agent::AreaHeader*>(area_->base()); }

 private:
  program::EventProgram program_;
  std::optional<trace::Area> area_;
};

// A call: the place of its return address, and its registers.
struct Call {
  u64* slot;
  u64 di = 0, function = 0x401000, kept = 0;
  u32 event = 0;

  Registers registers() const {
    Registers all{};
    all[Reg::sp] = word_of(slot), all[Reg::di] = di, all[Reg::si] = word_of(&di);
    for (const Reg reg : shared::kKeptRegisters) all[reg] = kept;
    return all;
  }
  void begin(Session& session, bool may_fault = true) const {
    shared::Point point{};
    point.address = function;
    Registers all = registers();
    agent::note_entry({nullptr, &point, &all, 1, may_fault, false}, session.header(), event);
  }
  EntryRecord end(Session& session) const {
    const shared::Point point{};
    Registers all = registers();
    all[Reg::di] = all[Reg::si] = 0;
    all[Reg::ip] = *slot;
    EntryRecord noted{};
    agent::Hit hit{nullptr, &point, &all, 1, true, false, false, function};
    hit.noted = &noted;
    agent::take_entry(hit, session.header(), event, word_of(slot));
    return noted;
  }
};

TEST(Noted, AReturnFindsItsEntryOnce) {
  Session session;
  u64 stack[1] = {0x1234};
  const Call call{.slot = stack, .di = 77};
  EXPECT_FALSE(call.end(session).known);
  call.begin(session);
  const EntryRecord noted = call.end(session);
  ASSERT_TRUE(noted.known);
  EXPECT_EQ(noted.words[0], 77U);
  EXPECT_EQ(noted.words[1], 77U) << "which %si pointed to";
  EXPECT_GT(noted.nanoseconds, 0U);
  EXPECT_LT(noted.nanoseconds, 1'000'000'000U);
  EXPECT_FALSE(call.end(session).known) << "it is taken";
}

TEST(Noted, ALaterCallInTheSamePlaceIsTheOne) {
  Session session;
  u64 stack[1] = {0x1234};
  Call{.slot = stack, .di = 1}.begin(session);
  const Call later{.slot = stack, .di = 2};
  later.begin(session);
  EXPECT_EQ(later.end(session).words[0], 2U);
  EXPECT_FALSE(later.end(session).known);
}

// The older call has been left by a longjmp; the one after it has no record.
TEST(Noted, AnOlderCallIsForgottenByOneThatCannotBeNoted) {
  Session session;
  u64 stack[1] = {0x1234};
  const Call call{.slot = stack, .di = 1};
  call.begin(session);
  call.begin(session, false);
  EXPECT_FALSE(call.end(session).known);
}

TEST(Noted, WhatIsOfAnotherCallIsNotTaken) {
  Session session, other;
  u64 stack[2] = {0x1234, 0x1234};
  const Call call{.slot = stack, .di = 1};
  const auto expect_missing = [&](const Call& returns, Session& in, const char* why) {
    call.begin(session);
    EXPECT_FALSE(returns.end(in).known) << why;
  };
  expect_missing({.slot = stack + 1}, session, "another slot");
  expect_missing({.slot = stack, .function = 0x402000}, session, "another function");
  expect_missing({.slot = stack, .event = 1}, session, "another event");
  expect_missing({.slot = stack, .event = 2}, session, "no event");
  expect_missing({.slot = stack, .kept = 5}, session, "it has other registers to keep");
  expect_missing(call, other, "another session");
  call.begin(session);
  stack[0] = 0x1235;
  EXPECT_FALSE(call.end(session).known) << "it returns elsewhere";
  stack[0] = 0x1234;
  EXPECT_FALSE(call.end(session).known) << "and that was the only time";
}

TEST(Noted, CallsInEachOtherHaveTheirs) {
  Session session;
  std::vector<u64> stack(30, 0x1234);
  for (u64 i = 0; i < stack.size(); ++i) Call{.slot = &stack[i], .di = i}.begin(session);
  for (u64 i = stack.size(); i-- != 0;) {
    const EntryRecord noted = Call{.slot = &stack[i]}.end(session);
    EXPECT_TRUE(noted.known) << i;
    EXPECT_EQ(noted.words[0], i);
  }
}

// A long call keeps its entry record while thousands come and go.
TEST(Noted, ALongCallKeepsItsEntry) {
  Session session;
  std::vector<u64> stack(20'000, 0x1234);
  const Call outer{.slot = &stack[0], .di = 5};
  outer.begin(session);
  for (u64 i = 1; i < stack.size(); ++i) {
    const Call inner{.slot = &stack[i], .di = i};
    inner.begin(session);
    EXPECT_EQ(inner.end(session).words[0], i);
  }
  EXPECT_EQ(outer.end(session).words[0], 5U);
}

TEST(Noted, MoreThanThereIsRoomForAreMissingNotWrong) {
  Session session;
  std::vector<u64> stack(20'000, 0x1234);
  for (u64 i = 0; i < stack.size(); ++i) Call{.slot = &stack[i], .di = i}.begin(session);
  u64 known = 0;
  for (u64 i = 0; i < stack.size(); ++i) {
    const EntryRecord noted = Call{.slot = &stack[i]}.end(session);
    if (!noted.known) continue;
    ++known;
    ASSERT_EQ(noted.words[0], i);
    ASSERT_EQ(noted.words[1], i);
  }
  EXPECT_GT(known, 3'000U);
  EXPECT_LT(known, 5'000U);
}

// Calls that return, calls that are left, and coroutines that go on in another thread, all in one table: a return gets the
// record of its own call, or nothing.
TEST(Noted, ThreadsNeverGetWhatIsNotTheirs) {
  constexpr u64 kThreads = 4, kRounds = 200'000, kStacks = 64, kDepth = 64;
  Session session;
  struct Coroutine {
    u64 stack[kDepth], ids[kDepth], depth = 0;
    bool taken = false;
  };
  std::vector<Coroutine> all(kStacks);
  std::atomic<u64> wrong{0}, right{0}, missing{0};
  const auto work = [&](u64 seed) {
    std::mt19937_64 random(seed);
    u64 next = seed << 48;
    for (u64 round = 0; round < kRounds; ++round) {
      Coroutine& here = all[random() % kStacks];
      if (__atomic_exchange_n(&here.taken, true, __ATOMIC_ACQUIRE)) continue;
      for (u64 steps = random() % 20; steps != 0; --steps) {
        if (here.depth < kDepth && random() % 2 == 0) {
          u64* const slot = &here.stack[here.depth];
          *slot = 0x1000 + random() % 4;
          here.ids[here.depth++] = ++next;
          Call{.slot = slot, .di = next}.begin(session);
        } else if (here.depth != 0 && random() % 8 == 0) {
          here.depth -= random() % here.depth;
        } else if (here.depth != 0) {
          const u64 top = --here.depth;
          const EntryRecord noted = Call{.slot = &here.stack[top]}.end(session);
          const bool same = noted.words[0] == here.ids[top] && noted.words[1] == here.ids[top];
          ++(!noted.known ? missing : same ? right : wrong);
        }
      }
      __atomic_store_n(&here.taken, false, __ATOMIC_RELEASE);
    }
  };
  std::vector<std::thread> threads;
  for (u64 i = 1; i <= kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(right, 20 * missing) << "most have theirs";
}

}  // namespace
}  // namespace uprobe::test
