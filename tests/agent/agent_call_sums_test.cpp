// SPDX-License-Identifier: MIT
// Calls that are counted and timed in the target: the agent's functions, called by hand, and what the tool reads.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "engine/summary/call_sums.h"
#include "engine/summary/summed_processes.h"
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
  explicit Session(u32 cpu_rings, bool by_process = false) {
    agent::learn_rseq(empty_block());
    program_.layout.is_return = true;
    program_.layout.fixed_bytes = 24;
    program_.insns = {{Op::begin, 0, 0, 0, 0}, {Op::load_self, 0, 0, 0, 0}, {Op::end, 0, 0, 0, 0}};
    program_.noted.fixed_bytes = 16;
    program_.note = {{Op::end, 0, 0, 0, 0}};
    program_.sums_calls = true;
    trace::AreaSpec spec{
        .events = {&program_, &program_}, .ring_bytes = 8192, .ring_count = cpu_rings + 1, .cpu_ring_count = cpu_rings};
    spec.sums_by_process = by_process;
    area_.emplace(trace::Area::create_private(spec).take());
    area_->header().tick_rate = u64{1} << 31;  // half a nanosecond
    area_->set_state(shared::SessionState::recording);
  }
  agent::AreaHeader* header() { return static_cast<agent::AreaHeader*>(area_->base()); }
  trace::Area& area() { return *area_; }
  void switch_off() { area_->set_state(shared::SessionState::off); }
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

TEST_P(CallsIn, TheSelfTimeAroundAnUntimedOneIsNotKnown) {
  Session session(GetParam());
  u64 stack[2] = {0x1234, 0x5678};
  const Call outer{stack, 0, 7}, inner{stack + 1, 1, 7};
  for (int i = 0; i < 3; ++i) {
    outer.begin(session);
    inner.begin(session), inner.end(session);
    if (i == 1) inner.end(session);
    outer.end(session);
  }
  EXPECT_EQ(session.area().counts(0).self_unknown, 1U);
  EXPECT_EQ(session.area().counts(1).self_unknown, 0U);
}

TEST_P(CallsIn, ThoseOfAnEventThatIsOffAreNotCounted) {
  Session session(GetParam());
  u64 stack[1] = {0x1234};
  session.switch_off();
  Call{stack}.begin(session), Call{stack}.end(session);
  EXPECT_EQ(session.sums().began, 0U);
  EXPECT_EQ(session.sums().timed(), 0U);
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

// The page before the area, in which a process keeps the number of its bank. Forgetting it makes this process another one.
class OwnPage {
 public:
  explicit OwnPage(Session& session)
      : at_(::mmap(reinterpret_cast<u8*>(session.header()) - shared::kMailboxBytes, shared::kMailboxBytes,
                   PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)) {}
  ~OwnPage() { ::munmap(at_, shared::kMailboxBytes); }
  OwnPage(const OwnPage&) = delete;
  OwnPage& operator=(const OwnPage&) = delete;
  bool is_there() const { return at_ != MAP_FAILED; }
  u32& bank() const { return static_cast<shared::Mailbox*>(at_)->sum_bank; }

 private:
  void* at_;
};

void call_as(Session& session, u32 tid) {
  u64 stack[1] = {0x1234};
  const Call call{stack, 0, tid};
  call.begin(session);
  call.end(session);
}

CallSums sums_in(Session& session, u32 bank) {
  CallSums sums;
  summary::add_call_sums(session.area(), 0, {0, bank}, sums);
  return sums;
}

TEST_P(CallsIn, ABankAreThoseOfOneProcess) {
  Session session(GetParam(), true);
  const OwnPage page(session);
  ASSERT_TRUE(page.is_there());
  const auto own = static_cast<u32>(::getpid());
  for (int i = 0; i < 3; ++i) call_as(session, own);
  EXPECT_EQ(page.bank(), 2U);
  page.bank() = 0;
  call_as(session, own);
  EXPECT_EQ(session.area().live(0).used_banks(), 3U);
  EXPECT_EQ(sums_in(session, 1).began, 3U);
  EXPECT_EQ(sums_in(session, 1).timed(), 3U);
  EXPECT_EQ(sums_in(session, 2).began, 1U);
  EXPECT_EQ(session.sums().began, 4U) << "all processes";
  const auto processes = summary::banks_by_process(session.area(), {});
  ASSERT_EQ(processes.size(), 2U) << "this one, and those without a bank";
  EXPECT_EQ(processes.rbegin()->first.id, own);
  EXPECT_EQ(processes.rbegin()->second.size(), 2U);
  char name[16] = {};
  ASSERT_EQ(::pthread_getname_np(::pthread_self(), name, sizeof name), 0);
  EXPECT_EQ(processes.rbegin()->first.name, name);
}

TEST_P(CallsIn, LossesAreThoseOfTheProcess) {
  Session session(GetParam(), true);
  const OwnPage page(session);
  ASSERT_TRUE(page.is_there());
  call_as(session, 7);
  page.bank() = 0;
  u64 stack[1] = {0x1234};
  EXPECT_FALSE(Call{stack}.end(session).known) << "without its entry";
  agent::count_missed(session.header(), 0);
  EXPECT_EQ(sums_in(session, 1).untimed, 0U);
  EXPECT_EQ(sums_in(session, 2).untimed, 1U);
  EXPECT_EQ(sums_in(session, 2).unfollowed, 1U);
  EXPECT_EQ(sums_in(session, 2).began, 0U);
}

TEST_P(CallsIn, ProcessesWithoutABankShareOne) {
  Session session(GetParam(), true);
  const OwnPage page(session);
  ASSERT_TRUE(page.is_there());
  const u32 banks = session.area().header().sum_banks;
  for (u32 i = 0; i < banks + 10; ++i) page.bank() = 0, call_as(session, 7);
  EXPECT_EQ(session.area().live(0).used_banks(), banks);
  EXPECT_EQ(sums_in(session, 0).began, 11U);
  EXPECT_EQ(sums_in(session, banks - 1).began, 1U);
  EXPECT_EQ(session.sums().began, banks + 10U);
  // Whatever stands there.
  page.bank() = ~u32{0};
  reinterpret_cast<shared::SumsHead*>(static_cast<u8*>(session.area().base()) + session.area().header().sum_offset)
      ->next_bank = ~u32{0};
  call_as(session, 7);
  page.bank() = 0;
  call_as(session, 7);
  EXPECT_EQ(sums_in(session, 0).began, 13U);
  EXPECT_EQ(session.area().live(0).used_banks(), banks);
}

INSTANTIATE_TEST_SUITE_P(Rows, CallsIn, testing::Values(0U, 64U));

}  // namespace
}  // namespace uprobe::test
