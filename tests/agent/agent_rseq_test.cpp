// SPDX-License-Identifier: MIT
// CPU rings: which threads write there, and which must not; no record is torn, doubled or unaccounted for while sections are
// interrupted, abandoned and killed.
#include <gtest/gtest.h>
#include <linux/rseq.h>
#include <sched.h>
#include <sys/wait.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "preload/ring.h"
#include "preload/thread.h"
#include "tests/agent/recording.h"
#include "tests/agent/torture.h"

extern "C" {
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));
}

namespace uprobe::test {
namespace {

using shared::Insn;
using shared::Op;
using shared::RecordHead;
using shared::Reg;

constexpr u32 kClaimed = 4;

u32 cpus() { return static_cast<u32>(::sysconf(_SC_NPROCESSORS_CONF)); }

struct rseq& own_rseq() {
  return *reinterpret_cast<struct rseq*>(static_cast<char*>(__builtin_thread_pointer()) + __rseq_offset);
}

std::vector<Insn> word_and_string() {
  return {
      {Op::begin, 0, 0, 0, 0}, {Op::load_register, static_cast<u8>(Reg::ax), 0, 0, 0}, {Op::store_value, 8, 0, 16, 0},
      {Op::begin, 0, 0, 0, 0}, {Op::load_register, static_cast<u8>(Reg::di), 0, 0, 0}, {Op::store_string, 4, 0, 24, 0},
      {Op::end, 0, 0, 0, 0}};
}

class Rseq : public testing::Test {
 protected:
  void SetUp() override {
    if (&__rseq_offset == nullptr || __rseq_size == 0) GTEST_SKIP() << "libc registers no rseq here";
    install_agent_handlers();
    block_ = &empty_block();
    agent::learn_rseq(*block_);
  }
  shared::Registers registers(u64 ax, const char* text) {
    shared::Registers r{};
    r[Reg::ax] = ax, r[Reg::di] = word_of(text), r[Reg::ip] = 0x1000;
    return r;
  }
  shared::ProcessBlock* block_ = nullptr;
};

TEST_F(Rseq, IsFoundWhereLibcSaysItIs) { EXPECT_EQ(block_->rseq_offset, __rseq_offset); }

TEST_F(Rseq, LookingForItDoesNotChangeTheRegistration) {
  EXPECT_EQ(::syscall(SYS_rseq, &own_rseq(), 32, 0, 0x53053053), -1);
  EXPECT_EQ(errno, EBUSY);
}

TEST_F(Rseq, NothingIsAskedUnderAFilter) {
  empty_block().flags = shared::kBlockFiltered;
  agent::learn_rseq(*block_);
  EXPECT_EQ(block_->rseq_offset, 0);
}

TEST_F(Rseq, AThreadWithoutARegistrationHasNone) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool ended = ::syscall(SYS_rseq, &own_rseq(), 32, RSEQ_FLAG_UNREGISTER, 0x53053053) == 0;
    agent::learn_rseq(empty_block());
    ::_exit(ended && agent::uprobe_block->rseq_offset == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Rseq, ARecordGoesToTheRingOfItsCpu) {
  OneEvent session(word_and_string(), 28, cpus(), kClaimed, 8192);
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  for (u32 cpu = 0; cpu < cpus(); ++cpu) {
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) continue;
    session.hit(registers(7, "fourteen bytes"));
    ASSERT_EQ(session.records(cpu), 1U);
    const u8* data = session.area().data(cpu);
    RecordHead head;
    std::memcpy(&head, data, sizeof head);
    EXPECT_EQ(head.cpu, cpu);
    EXPECT_EQ(head.payload_bytes, 28U + 15);
    EXPECT_EQ(head.tsc, session.area().ring(cpu).stamp);
    EXPECT_STREQ(reinterpret_cast<const char*>(data) + sizeof head + 28, "fourteen bytes");
    EXPECT_EQ(session.area().ring(cpu).begun, 1U);
    EXPECT_FALSE(session.area().is_being_written(cpu));
  }
  ::sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(session.records_from(cpus(), cpus() + kClaimed), 0U);
  EXPECT_EQ(own_rseq().rseq_cs, 0U);
}

TEST_F(Rseq, AFaultInTheSectionLeadsToAClaimedRing) {
  OneEvent session(word_and_string(), 28, cpus(), kClaimed, 8192);
  session.hit(registers(7, reinterpret_cast<const char*>(8)));
  EXPECT_EQ(session.records_from(0, cpus()), 0U);
  EXPECT_EQ(session.records_from(cpus(), cpus() + kClaimed), 1U);
  session.hit(registers(7, "fine"));
  EXPECT_EQ(session.records_from(0, cpus()), 1U);
}

TEST_F(Rseq, WithoutACpuNumberARingIsClaimed) {
  OneEvent session(word_and_string(), 28, cpus(), kClaimed, 8192);
  std::thread([&] {
    agent::forget_cpu(*block_);
    session.hit(registers(1, "a"));
  }).join();
  block_->rseq_offset = 0;
  session.hit(registers(1, "b"));
  EXPECT_EQ(session.records_from(cpus(), cpus() + kClaimed), 2U);
}

TEST_F(Rseq, ABorrowedControlBlockHasNoRseq) {
  OneEvent session(word_and_string(), 28, cpus(), kClaimed, 8192);
  const u64 thread = word_of(__builtin_thread_pointer());
  block_->own_rseq -= shared::kBorrowedStep;
  session.hit(registers(1, "others may borrow"));
  EXPECT_EQ(session.records_from(0, cpus()), 1U);
  agent::thread_entry(*block_, thread, true)->borrower = 4711;
  session.hit(registers(1, "not this one"));
  EXPECT_EQ(session.records_from(0, cpus()), 1U);
}

// The one word that bodies test.
TEST_F(Rseq, TheWordForTrampolinesIsPositiveUnlessBorrowed) {
  block_->own_rseq = 0, block_->tid_offset = 0;
  agent::note_own_rseq(*block_);
  EXPECT_EQ(block_->own_rseq, 0) << "the thread id is not known";
  EXPECT_EQ(agent::thread_id(*block_, true), static_cast<u32>(::gettid()));
  const shared::i64 own = block_->rseq_offset + shared::kRseqBias;
  EXPECT_EQ(block_->own_rseq, own);
  agent::note_own_rseq(*block_);
  EXPECT_EQ(block_->own_rseq, own);
  // As under a filter, where the call's flags tell.
  block_->flags |= shared::kBlockFiltered;
  constexpr agent::CloneKind kVfork{shared::kParentWaits, true};
  agent::after_clone(*block_, 0, kVfork);
  EXPECT_EQ(shared::borrowers(block_->own_rseq), 1);
  EXPECT_LT(block_->own_rseq, 0);
  agent::after_clone(*block_, 4711, kVfork);
  EXPECT_EQ(block_->own_rseq, own);
  agent::after_clone(*block_, 0, kVfork);
  agent::thread_entry(*block_, word_of(__builtin_thread_pointer()), true)->borrower = 0;
  agent::after_clone(*block_, 0, {0, false});  // fork, in such a child
  EXPECT_EQ(shared::borrowers(block_->own_rseq), 0);
  EXPECT_EQ(block_->own_rseq, own);
}

TEST_F(Rseq, ACpuBeyondTheRingsClaims) {
  if (cpus() < 2) GTEST_SKIP() << "one CPU";
  OneEvent session(word_and_string(), 28, 1, kClaimed, 8192);
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(1, &one);
    if (::sched_setaffinity(0, sizeof one, &one) == 0) session.hit(registers(1, "a"));
  }).join();
  EXPECT_EQ(session.records(0), 0U);
  EXPECT_EQ(session.records_from(1, 1 + kClaimed), 1U);
}

TEST_F(Rseq, AFullRingIsCountedAndNothingHasBegun) {
  OneEvent session(word_and_string(), 28, cpus(), 0, 8192);
  for (u64 i = 0; i < cpus() * 8192 / 56 + 10; ++i) session.hit(registers(i, "x"));
  EXPECT_GE(session.counts().lost_full, 10U);
  for (u32 i = 0; i < cpus(); ++i) EXPECT_FALSE(session.area().is_being_written(i));
}

TEST_F(Rseq, ARecordThatHasNoRoomOnItsCpuClaims) {
  OneEvent session(word_and_string(), 28, cpus(), kClaimed, 8192);
  const u64 hits = cpus() * (8192 / 56 + 1) + 10;
  for (u64 i = 0; i < hits; ++i) session.hit(registers(i, "x"));
  EXPECT_GE(session.records_from(cpus(), cpus() + kClaimed), 10U);
  EXPECT_EQ(session.records_from(0, cpus() + kClaimed), hits);
  EXPECT_EQ(session.counts().lost_full + session.counts().lost_busy, 0U);
}

// The claimed path runs the same code outside of a section.
TEST_F(Rseq, AClaimedRecordAfterASectionIsNoSection) {
  OneEvent session(word_and_string(), 28, cpus(), kClaimed, 1 << 20);
  struct sigaction action {};
  static std::atomic<int> signals{0};
  action.sa_handler = [](int) { ++signals; };
  ASSERT_EQ(::sigaction(SIGALRM, &action, nullptr), 0);
  timer_t timer{};
  ASSERT_EQ(::timer_create(CLOCK_MONOTONIC, nullptr, &timer), 0);
  const itimerspec pace{.it_interval = {0, 20'000}, .it_value = {0, 20'000}};
  ASSERT_EQ(::timer_settime(timer, 0, &pace, nullptr), 0);
  const std::string text(3000, 'x');
  while (signals < 2000) {
    session.hit(registers(1, text.c_str()));
    session.hit(registers(2, text.c_str()), true);
    for (u32 i = 0; i < cpus() + kClaimed; ++i)
      session.area().ring(i).tail = static_cast<u32>(session.area().ring(i).commit >> 32);
  }
  ::timer_delete(timer);
  EXPECT_EQ(session.counts().lost_busy, 0U);
}

OneEvent* g_torture = nullptr;

void hit_by_hand(u64 sequence, u64 stream, const char* text) {
  shared::Registers r{};
  r[Reg::ax] = sequence, r[Reg::bx] = stream, r[Reg::di] = word_of(text), r[Reg::ip] = 0x1000;
  g_torture->hit(r);
}

// Rings that records claim when that of their CPU is full stay claimed here: nothing puts the signals off.
TEST_F(Rseq, Torture) {
  for (const u32 claimed : {0U, 16U}) {
    OneEvent session(torture_program(), kTortureFixed, cpus(), claimed, 1 << 20);
    g_torture = &session;
    Torture torture(session, hit_by_hand);
    torture.run(torture_seconds() / 2);
    torture.expect_all_accounted_for();
  }
}

}  // namespace
}  // namespace uprobe::test
