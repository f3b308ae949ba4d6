// SPDX-License-Identifier: MIT
// Publishing: the form of a record, a ring without room, and that no hit is lost uncounted while threads and signal handlers
// hit at the same time.
#include <gtest/gtest.h>
#include <sys/time.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "engine/trace/reader.h"
#include "tests/agent/agent_in_test.h"

namespace uprobe::test {
namespace {

using shared::Insn;
using shared::Op;
using shared::RecordHead;
using shared::Reg;
using trace::Area;

constexpr u32 kFixed = 32;  // head, two words

// Event 0: ax and bx. Event 1: a string at di.
class Recording {
 public:
  Recording(u32 rings, u64 ring_bytes, u32 string_limit = shared::kUsualString) {
    programs_[0].layout.fixed_bytes = kFixed;
    programs_[0].insns = {Insn{Op::begin, 0, 0, 0, 0},
                          Insn{Op::load_register, static_cast<u8>(Reg::ax), 0, 0, 0},
                          Insn{Op::store_value, 8, 0, 16, 0},
                          Insn{Op::begin, 0, 0, 0, 0},
                          Insn{Op::load_register, static_cast<u8>(Reg::bx), 0, 0, 0},
                          Insn{Op::store_value, 8, 0, 24, 0},
                          Insn{Op::end, 0, 0, 0, 0}};
    programs_[1].layout.fixed_bytes = 20;
    programs_[1].insns = {Insn{Op::begin, 0, 0, 0, 0}, Insn{Op::load_register, static_cast<u8>(Reg::di), 0, 0, 0},
                          Insn{Op::store_string, 0, 0, 16, 0}, Insn{Op::end, 0, 0, 0, 0}};
    trace::AreaSpec spec{.events = {&programs_[0], &programs_[1]}, .ring_bytes = ring_bytes, .ring_count = rings};
    spec.string_limit = string_limit;
    area_.emplace(Area::create_private(spec).take());
    area_->set_state(shared::SessionState::recording);
  }

  Area& area() { return *area_; }
  shared::EventCounts& counts(u32 index) { return area_->live(0).counts(index); }
  agent::AreaHeader* header() { return static_cast<agent::AreaHeader*>(area_->base()); }

  void hit(u32 tid, u64 ax, u64 bx, u32 event = 0, u64 di = 0) {
    shared::Registers registers{};
    registers[Reg::ax] = ax, registers[Reg::bx] = bx, registers[Reg::di] = di, registers[Reg::ip] = 0x1000;
    const shared::Point point{};
    const agent::Hit hit{agent::uprobe_block, &point, &registers, tid, true};
    agent::record_event(hit, header(), event);
  }
  u64 records(u32 ring) { return area_->ring(ring).commit & 0xffffffff; }
  u64 all_records() {
    u64 sum = 0;
    for (u32 i = 0; i < area_->ring_count(); ++i) sum += records(i);
    return sum;
  }
  u32 ring_with_records() {
    for (u32 i = 0; i < area_->ring_count(); ++i)
      if (records(i) != 0) return i;
    return ~0u;
  }

 private:
  program::EventProgram programs_[2];
  std::optional<Area> area_;
};

class Record : public testing::Test {
 protected:
  void SetUp() override {
    install_agent_handlers();
    empty_block();
  }
};

TEST_F(Record, HeadAndPayload) {
  Recording session(2, 8192);
  const u64 before = trace::Clock::now();
  session.hit(77, 1, 2);
  const u64 after = trace::Clock::now();
  const u32 ring = session.ring_with_records();
  ASSERT_LT(ring, 2U);
  RecordHead head;
  std::memcpy(&head, session.area().data(ring), sizeof head);
  EXPECT_EQ(head.length, sizeof head + kFixed);
  EXPECT_EQ(head.number, 0U);
  EXPECT_EQ(head.payload_bytes, kFixed);
  EXPECT_GE(head.tsc, before);
  EXPECT_LE(head.tsc, after);
  EXPECT_EQ(head.flags, 0);
  EXPECT_LT(head.cpu, ::sysconf(_SC_NPROCESSORS_CONF));
  const shared::Ring& words = session.area().ring(ring);
  EXPECT_EQ(words.owner, 0U);
  EXPECT_EQ(words.stamp, head.tsc);
  EXPECT_EQ(words.commit, u64{head.length / 8} << 32 | 1);
}

TEST_F(Record, NothingIsRecordedWhileTheSessionIsOff) {
  Recording session(1, 8192);
  session.area().set_state(shared::SessionState::off);
  session.hit(1, 1, 2);
  EXPECT_EQ(session.all_records(), 0U);
}

TEST_F(Record, AnEventThatDoesNotExistIsNothing) {
  Recording session(1, 8192);
  session.hit(1, 1, 2, 2);
  session.hit(1, 1, 2, 0xffffffff);
  EXPECT_EQ(session.all_records(), 0U);
}

TEST_F(Record, AFullRingCountsAndStaysAsItIs) {
  Recording session(1, 8192);
  const u64 fit = 8192 / (sizeof(RecordHead) + kFixed);
  for (u64 i = 0; i < fit + 10; ++i) session.hit(1, i, 0);
  EXPECT_EQ(session.records(0), fit);
  EXPECT_EQ(session.counts(0).lost_full, 10U);
  EXPECT_EQ(session.counts(0).lost_too_big, 0U);
  session.area().ring(0).tail = (sizeof(RecordHead) + kFixed) / 8;  // as a reader that has taken one
  session.hit(1, 0, 0);
  EXPECT_EQ(session.records(0), fit + 1);
}

TEST_F(Record, ATailThatCannotBeIsAFullRing) {
  Recording session(1, 8192);
  for (const u32 tail : {1u, 0x80000000u, 0xffffff00u - 8192}) {
    session.area().ring(0).tail = tail;
    session.hit(1, 0, 0);
  }
  EXPECT_EQ(session.records(0), 0U);
  EXPECT_EQ(session.counts(0).lost_full, 3U);
}

TEST_F(Record, TooBigIsCountedApart) {
  Recording session(1, 16384, 0);
  const std::string text(shared::kMaxPayload - 20, 'x');
  session.hit(1, 0, 0, 1, word_of(text.c_str()));
  EXPECT_EQ(session.counts(1).lost_too_big, 1U);
  EXPECT_EQ(session.counts(1).lost_full, 0U);
  session.hit(1, 0, 0, 1, word_of(text.c_str() + 1));
  EXPECT_EQ(session.records(0), 1U);
}

// In the smallest ring as well, one after the other.
TEST_F(Record, AStringThatIsTooLongIsCutAndNoRecordIsLost) {
  const std::string text(100000, 'x');
  for (const auto& [ring_bytes, limit, most] : {std::tuple{8192u, shared::kUsualString, 4072u - 21},
                                                std::tuple{16384u, shared::kUsualString, shared::kUsualString},
                                                std::tuple{1u << 20, shared::kMostString, shared::kMostString}}) {
    Recording session(1, ring_bytes, limit);
    for (u32 i = 0; i < 3; ++i) {
      session.hit(1, 0, 0, 1, word_of(text.c_str()));
      shared::Ring& ring = session.area().ring(0);
      const u32 end = static_cast<u32>(ring.commit >> 32);
      RecordHead head{};
      std::memcpy(&head, session.area().data(0) + (u64{ring.tail} * 8 & (ring_bytes - 1)), sizeof head);
      EXPECT_EQ(head.payload_bytes, 20 + most);
      EXPECT_LE(head.length, ring_bytes / 2);
      ring.tail = end;  // as a reader that has taken it
    }
    EXPECT_EQ(session.records(0), 3U);
    EXPECT_EQ(session.counts(1).lost_too_big + session.counts(1).lost_full, 0U);
  }
}

TEST_F(Record, ClaimedRingsArePassedAndAllClaimedIsCounted) {
  Recording session(3, 8192);
  session.area().ring(0).owner = session.area().ring(1).owner = 999;
  session.hit(1, 0, 0);
  EXPECT_EQ(session.records(2), 1U);
  session.area().ring(2).owner = 999;
  session.hit(1, 0, 0);
  EXPECT_EQ(session.counts(0).lost_busy, 1U);
  EXPECT_EQ(session.all_records(), 1U);
  EXPECT_EQ(session.area().ring(0).owner, 999U);
}

TEST_F(Record, PositionsAndNumbersWrap) {
  Recording session(1, 8192);
  shared::Ring& ring = session.area().ring(0);
  const u32 near_end = 0xfffffff8;  // 64 bytes before the position wraps
  ring.commit = u64{near_end} << 32 | 0xffffffff;
  ring.tail = near_end;
  session.hit(1, 5, 6);
  session.hit(1, 7, 8);
  EXPECT_EQ(ring.commit >> 32, (near_end + 14) & 0xffffffff);
  EXPECT_EQ(ring.commit & 0xffffffff, 1U);
  RecordHead first, second;
  const u8* data = session.area().data(0);
  std::memcpy(&first, data + (u64{near_end} * 8 & 8191), sizeof first);
  std::memcpy(&second, data + (u64{near_end + 7} * 8 & 8191), sizeof second);
  EXPECT_EQ(first.number, 0xffffffffU);
  EXPECT_EQ(second.number, 0U);
}

TEST_F(Record, ARecordRunsOnOverTheEndOfTheRing) {
  Recording session(1, 8192);
  shared::Ring& ring = session.area().ring(0);
  ring.commit = u64{8192 / 8 - 2} << 32;
  ring.tail = 8192 / 8 - 2;
  session.hit(1, 0x1122334455667788, 0);
  u64 value = 0;
  std::memcpy(&value, session.area().data(0) + 8192 - 16 + sizeof(RecordHead) + 16, sizeof value);
  EXPECT_EQ(value, 0x1122334455667788U);
  std::memcpy(&value, session.area().data(0) - 16 + sizeof(RecordHead) + 16, sizeof value);
  EXPECT_EQ(value, 0x1122334455667788U) << "the ring's data stands twice in a row";
}

TEST_F(Record, WithoutAClockTheRecordSaysSo) {
  if (!clock_can_fault()) GTEST_SKIP() << "rdtsc never faults on this machine";
  Recording session(1, 8192);
  ASSERT_EQ(::syscall(SYS_prctl, 26 /* PR_SET_TSC */, 2 /* PR_TSC_SIGSEGV */, 0, 0, 0), 0);
  session.hit(1, 5, 6);
  ASSERT_EQ(::syscall(SYS_prctl, 26, 1 /* PR_TSC_ENABLE */, 0, 0, 0), 0);
  RecordHead head;
  std::memcpy(&head, session.area().data(0), sizeof head);
  EXPECT_EQ(head.tsc, 0U);
  EXPECT_EQ(head.flags, shared::kRecordNoClock);
  EXPECT_EQ(session.records(0), 1U);
}

// The reader's records, by (thread, sequence).
struct Tally {
  std::map<u64, std::set<u64>> seen;
  u64 records = 0, repeated = 0, torn = 0;

  trace::Sink sink() {
    return [this](const trace::EventRecord& record) {
      u64 thread = 0, sequence = 0;
      std::memcpy(&thread, record.payload.data() + 16, 8);
      std::memcpy(&sequence, record.payload.data() + 24, 8);
      if (record.tid != static_cast<u32>(thread)) ++torn;
      if (!seen[thread].insert(sequence).second) ++repeated;
      ++records;
    };
  }
};

void expect_all_accounted_for(Recording& session, const Tally& tally, const trace::ReaderCounts& counts, u64 hits) {
  const shared::EventCounts& event = session.counts(0);
  EXPECT_EQ(tally.records + event.lost_full + event.lost_busy, hits);
  EXPECT_EQ(tally.torn, 0U);
  EXPECT_EQ(tally.repeated, 0U);
  EXPECT_EQ(counts.damaged, 0U);
  EXPECT_EQ(counts.missing, 0U);
  EXPECT_EQ(counts.bad_stamps, 0U);
  EXPECT_EQ(counts.order_breaks, 0U);
}

TEST_F(Record, ThreadsAndAReader) {
  constexpr u64 kThreads = 6, kHits = 30'000;
  Recording session(4, 65536);
  auto clock = trace::Clock::start();
  trace::TaskNames names;
  trace::Reader reader(session.area(), clock, names);
  std::atomic<u64> done{0};
  std::vector<std::thread> threads;
  for (u64 t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      const auto tid = static_cast<u32>(::gettid());  // a real one: the reader looks after rings whose thread is gone
      for (u64 i = 0; i < kHits; ++i) session.hit(tid, tid, i);
      ++done;
    });
  Tally tally;
  while (done != kThreads) reader.poll(tally.sink());
  for (std::thread& thread : threads) thread.join();
  reader.finish(tally.sink());
  expect_all_accounted_for(session, tally, reader.counts(), kThreads * kHits);
}

// A handler may hit at any instruction of a hit: its thread then holds a ring, so it takes another one.
Recording* g_session = nullptr;
std::atomic<u64> g_handler_hits{0};
constexpr u64 kInHandler = u64{1} << 32;  // the handler's hits count on their own

void hit_in_handler(int) {
  const int error = errno;
  g_session->hit(static_cast<u32>(::gettid()), kInHandler | static_cast<u32>(::gettid()), g_handler_hits++);
  errno = error;
}

TEST_F(Record, HitsInSignalHandlersOfAHit) {
  Recording session(4, 1 << 20);
  g_session = &session;
  g_handler_hits = 0;
  struct sigaction action {};
  action.sa_handler = hit_in_handler;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(::sigaction(SIGPROF, &action, nullptr), 0);
  timer_t timer{};
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL, event.sigev_signo = SIGPROF;
  ASSERT_EQ(::timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
  const itimerspec pace{.it_interval = {0, 200'000}, .it_value = {0, 200'000}};
  ASSERT_EQ(::timer_settime(timer, 0, &pace, nullptr), 0);
  auto clock = trace::Clock::start();
  trace::TaskNames names;
  trace::Reader reader(session.area(), clock, names);
  Tally tally;
  const auto tid = static_cast<u32>(::gettid());
  u64 hits = 0;
  while (g_handler_hits < 2000) {
    for (u64 i = 0; i < 500; ++i) session.hit(tid, tid, hits++);
    reader.poll(tally.sink());
  }
  ::timer_delete(timer);
  reader.finish(tally.sink());
  expect_all_accounted_for(session, tally, reader.counts(), hits + g_handler_hits);
}

}  // namespace
}  // namespace uprobe::test
