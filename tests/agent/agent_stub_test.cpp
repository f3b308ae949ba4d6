// SPDX-License-Identifier: MIT
// Return stubs in this very program: each returned value arrives, at the caller that it belongs to, however the frames between
// are left.
#include <execinfo.h>
#include <gtest/gtest.h>
#include <setjmp.h>
#include <ucontext.h>

#include <atomic>
#include <ctime>
#include <random>
#include <thread>

#include "engine/shared/return_stub.h"
#include "preload/stubs.h"
#include "preload/trampolines.h"
#include "tests/agent/jump_probe.h"

extern "C" {
extern const char return_thunk_site[], return_pops_site[], return_loaded_site[], return_takes_word[], return_again[];
extern void* return_target;
long return_thunk(long);
long return_call_pops(long, long);
long return_to_data(long);
extern const char __executable_start[], etext[];
}

namespace uprobe::test {
namespace {

using shared::Insn;
using shared::Op;
using shared::Reg;

struct ReturnState {
  u64 registers[15];  // rax rbx rcx rdx rsi rdi rbp r8..r15
  u64 flags;
  u8 vectors[16][32];
  u64 below[16];  // the first: the distance of the stack pointer
  u8 st0[16];
};
static_assert(offsetof(ReturnState, below) == 640 && offsetof(ReturnState, st0) == 768);
extern "C" void return_state(const ReturnState* in, ReturnState* out);

constexpr u32 kFixed = sizeof(shared::ReturnHead) + 3 * 8;

// ax, sp, ip
std::vector<Insn> program() {
  std::vector<Insn> insns;
  u32 at = sizeof(shared::ReturnHead);
  for (const Reg reg : {Reg::ax, Reg::sp, Reg::ip}) {
    insns.push_back({Op::begin, 0, 0, 0, 0});
    insns.push_back({Op::load_register, static_cast<u8>(reg), 0, 0, 0});
    insns.push_back({Op::store_value, 8, 0, at, 0});
    at += 8;
  }
  insns.push_back({Op::end, 0, 0, 0, 0});
  return insns;
}

struct Returned {
  shared::ReturnHead head;
  u64 ax, sp, ip;
};
static_assert(sizeof(Returned) == kFixed);

// A probe at the return of the function with this site.
class ReturnProbe {
 public:
  explicit ReturnProbe(const char* site, const std::vector<Insn>& insns = program())
      : session_(insns, kFixed, static_cast<u32>(::sysconf(_SC_NPROCESSORS_CONF)), 4, 1 << 20), probe_(site) {
    install_agent_handlers();
    session_.event().flags = shared::kEventReturns;
    probe_.block().consumers[0].kind = static_cast<u8>(shared::ConsumerKind::stub);
    probe_.block().head.any_caller = 1;
    probe_.block().head.agent_text = word_of(__executable_start);
    probe_.block().head.agent_text_end = word_of(etext);
    probe_.arm(session_, false);
  }
  JumpProbe& probe() { return probe_; }
  // The program from an instruction on makes the entry record, of one word.
  void note_from(u32 first) {
    shared::Event& event = session_.event();
    event.flags |= shared::kEventNotes;
    event.first_note = first, event.note_count = 4, event.note_bytes = sizeof(shared::PayloadHead) + 8;
    session_.header()->tick_rate = 1;
  }
  u64 missed() { return session_.counts().missed; }
  u64 lost() { return session_.counts().lost_full + session_.counts().lost_busy; }

  // Takes the records since the last time.
  std::vector<Returned> take() {
    std::vector<Returned> all;
    for (u32 i = 0; i < session_.area().ring_count(); ++i) {
      shared::Ring& ring = session_.area().ring(i);
      for (const u32 end = static_cast<u32>(ring.commit >> 32); ring.tail != end;) {
        const u8* at = session_.area().data(i) + (u64{ring.tail} * 8 & (session_.area().ring_bytes() - 1));
        shared::RecordHead head;
        std::memcpy(&head, at, sizeof head);
        std::memcpy(&all.emplace_back(), at + sizeof head, sizeof(Returned));
        ring.tail += head.length / 8;
      }
    }
    return all;
  }
  u64 count() { return take().size(); }

 private:
  OneEvent session_;
  JumpProbe probe_;
};

template <class Function>
void lead_to(Function* function) {
  return_target = reinterpret_cast<void*>(function);
}

ReturnState state_of(u64 seed, u64 flags) {
  std::mt19937_64 random(seed);
  ReturnState state{};
  for (u64& value : state.registers) value = random();
  for (auto& vector : state.vectors)
    for (u8& byte : vector) byte = static_cast<u8>(random());
  for (u64& word : state.below) word = random();
  const long double top = static_cast<long double>(seed) + 0.25L;
  std::memcpy(state.st0, &top, 10);
  state.flags = 0x202 | flags;
  return state;
}

bool same_as_without(const ReturnState& in, const ReturnState& out) {
  ReturnState expected = in;
  expected.below[0] = 0, expected.below[1] = out.below[1];
  return std::memcmp(&expected, &out, sizeof out) == 0;
}

constexpr u64 kArithmetic = 0x8d5, kDirection = 0x400, kAlignment = 0x40000;

TEST(Stubs, AllThatAFunctionLeavesBehindSurvives) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx")) GTEST_SKIP() << "no AVX here";
  ReturnProbe probe(return_loaded_site);
  u64 calls = 0;
  for (u64 seed = 0; seed < 64; ++seed)
    for (const u64 flags : {u64{0}, kArithmetic, kDirection, kAlignment, kArithmetic | kDirection | kAlignment,
                            seed % 64 << 6 & kArithmetic, seed % 16 & kArithmetic}) {
      const ReturnState in = state_of(seed, flags);
      ReturnState out{};
      return_state(&in, &out);
      EXPECT_TRUE(same_as_without(in, out)) << seed << " " << std::hex << flags;
      ++calls;
      const auto returned = probe.take();
      ASSERT_EQ(returned.size(), 1U);
      EXPECT_EQ(returned[0].ax, in.registers[0]);
    }
  EXPECT_EQ(probe.missed(), 0U);
  EXPECT_GT(calls, 400U);
}

long twice(long value) { return 2 * value; }

TEST(Stubs, TheRecordSaysWhoReturnedWhere) {
  ReturnProbe probe(return_thunk_site);
  lead_to(twice);
  EXPECT_EQ(return_thunk(21), 42);
  const auto returned = probe.take();
  ASSERT_EQ(returned.size(), 1U);
  EXPECT_EQ(returned[0].head.common.ip, probe.probe().site());
  EXPECT_EQ(returned[0].ax, 42U);
  EXPECT_EQ(returned[0].ip, returned[0].head.return_ip);
  EXPECT_GT(returned[0].ip, word_of(__executable_start));
  EXPECT_LT(returned[0].ip, word_of(etext));
  EXPECT_FALSE(agent::is_in_stub(returned[0].ip));
}

// The stack below is painted first; a hit may use as much as stub.S has checked for a return.
__attribute__((noinline)) u32 stack_use() {
  constexpr u32 kPainted = 4096, kRedZone = 128;
  u64 sp = 0;
  asm volatile("mov %%rsp, %0" : "=r"(sp));
  auto* const below = reinterpret_cast<volatile u8*>(sp - kRedZone - kPainted);
  for (u32 i = 0; i < kPainted; ++i) below[i] = 0xb7;
  return_thunk(21);
  u32 untouched = 0;
  while (untouched < kPainted && below[untouched] == 0xb7) ++untouched;
  return kPainted - untouched;
}

TEST(Stubs, StackUseIsBounded) {
  ReturnProbe probe(return_thunk_site);
  lead_to(twice);
  const u32 in_section = stack_use();
  probe.probe().block().head.rseq_offset = 0;
  const u32 claimed = stack_use();
  std::printf("stack below the red zone: %u bytes; where a ring is claimed: %u\n", in_section, claimed);
  EXPECT_LE(in_section, 1056U);
  EXPECT_LE(claimed, 1056U);
}

// rdi at the entry, in the place of ax; nanoseconds, in that of ip.
std::vector<Insn> looks_back() {
  constexpr u32 kAt = sizeof(shared::ReturnHead);
  return {{Op::begin, 0, 0, 0, 0},
          {Op::load_entry, 8, 0, sizeof(shared::PayloadHead), 0},
          {Op::store_value, 8, 0, kAt, 0},
          {Op::begin, 0, 0, 0, 0},
          {Op::load_latency, 0, 0, 0, 0},
          {Op::store_value, 8, 0, kAt + 16, 0},
          {Op::end, 0, 0, 0, 0},
          {Op::begin, 0, 0, 0, 0},
          {Op::load_register, static_cast<u8>(Reg::di), 0, 0, 0},
          {Op::store_value, 8, 0, sizeof(shared::PayloadHead), 0},
          {Op::end, 0, 0, 0, 0}};
}
constexpr u32 kNoteOfLooksBack = 7;

TEST(Stubs, AReturnKnowsItsEntry) {
  ReturnProbe probe(return_thunk_site, looks_back());
  probe.note_from(kNoteOfLooksBack);
  lead_to(twice);
  for (long i = 0; i < 100; ++i) return_thunk(i);
  const auto returned = probe.take();
  ASSERT_EQ(returned.size(), 100U);
  for (u64 i = 0; i < 100; ++i) EXPECT_EQ(returned[i].ax, i);
}

long down(long depth) { return depth == 0 ? 0 : return_thunk(depth - 1) + 1; }

TEST(Stubs, EachOfManyCallsKnowsItsOwnEntry) {
  ReturnProbe probe(return_thunk_site, looks_back());
  probe.note_from(kNoteOfLooksBack);
  lead_to(down);
  EXPECT_EQ(return_thunk(50), 50);
  const auto returned = probe.take();
  ASSERT_EQ(returned.size(), 51U);
  for (u64 i = 0; i <= 50; ++i) EXPECT_EQ(returned[i].ax, i) << "the innermost returns first";
  for (u64 i = 1; i <= 50; ++i) EXPECT_GE(returned[i].ip, returned[i - 1].ip) << "and has taken the least";
}

// A jump leads to the thunk again: that is still the same call.
TEST(Stubs, WhoComesAgainByAJumpIsOneCall) {
  ReturnProbe probe(return_thunk_site, looks_back());
  probe.note_from(kNoteOfLooksBack);
  return_target = const_cast<char*>(return_again);
  EXPECT_EQ(return_thunk(5), 0);
  const auto returned = probe.take();
  ASSERT_EQ(returned.size(), 1U);
  EXPECT_EQ(returned[0].ax, 5U);
  EXPECT_EQ(probe.missed(), 5U);
}

TEST(Stubs, NotingTakesNoMoreOfTheStack) {
  ReturnProbe probe(return_thunk_site, looks_back());
  probe.note_from(kNoteOfLooksBack);
  lead_to(twice);
  constexpr u32 kMostStack = 1400;  // stub.S checks for more
  const u32 used = stack_use();
  std::printf("stack below the red zone: %u bytes\n", used);
  EXPECT_LE(used, kMostStack);
}

TEST(Stubs, ReturnsThatTakeTheirArguments) {
  ReturnProbe probe(return_pops_site);
  for (long i = 0; i < 100; ++i) EXPECT_EQ(return_call_pops(i, 3), 2 * i + 3);
  EXPECT_EQ(probe.count(), 100U);
}

TEST(Stubs, AWordThatIsNoReturnAddressStays) {
  ReturnProbe probe(return_thunk_site);
  return_target = const_cast<char*>(return_takes_word);
  for (const long word : {0L, 1L, -1L, 0x7fff12345678L, static_cast<long>(word_of(return_takes_word))})
    EXPECT_EQ(return_to_data(word), word);
  EXPECT_EQ(probe.count(), 0U);
  EXPECT_EQ(probe.missed(), 5U);
}

struct Counts {
  explicit Counts(int& count) : count_(count) {}
  Counts(const Counts&) = delete;
  Counts& operator=(const Counts&) = delete;
  ~Counts() { ++count_; }
  int& count_;
};
int g_destroyed = 0;

long throw_below(long depth) {
  const Counts counts(g_destroyed);
  if (depth == 0) throw 7;
  const long found = return_thunk(depth - 1);
  asm volatile("" ::: "memory");
  return found + 1;
}

long rethrow(long depth) {
  try {
    return throw_below(depth) + 1;
  } catch (...) {
    throw;
  }
}

[[noreturn]] void throws(long value) { throw value; }

// The call is the last instruction of its try range.
long catch_at_the_end(long value) {
  try {
    throws(value);
  } catch (const long caught) {
    return caught + 1;
  }
}

TEST(Stubs, ExceptionsPass) {
  ReturnProbe probe(return_thunk_site);
  for (const auto function : {throw_below, rethrow})
    for (const long depth : {0L, 1L, 2L, 50L}) {
      lead_to(function);
      g_destroyed = 0;
      int caught = 0;
      try {
        return_thunk(depth);
      } catch (const int value) {
        caught = value;
      }
      EXPECT_EQ(caught, 7);
      EXPECT_EQ(g_destroyed, depth + 1);
    }
  lead_to(catch_at_the_end);
  EXPECT_EQ(probe.count(), 0U) << "each frame was abandoned";
  EXPECT_EQ(return_thunk(5), 6);
  EXPECT_EQ(probe.count(), 1U);
}

void* g_frames[256];
long look_back(long depth) {
  if (depth == 0) return ::backtrace(g_frames, 256);
  const long found = return_thunk(depth - 1);
  asm volatile("" ::: "memory");
  return found;
}

TEST(Stubs, BacktracesGoThrough) {
  lead_to(look_back);
  const long without = return_thunk(20);
  const u64 root = word_of(g_frames[without - 1]);
  ReturnProbe probe(return_thunk_site);
  lead_to(look_back);
  EXPECT_EQ(return_thunk(20), without + 21) << "a frame for each stub";
  EXPECT_EQ(word_of(g_frames[without + 20]), root);
  EXPECT_EQ(probe.count(), 21U);
}

jmp_buf g_place;
long jump_out(long depth) {
  if (depth == 0) ::longjmp(g_place, 1);
  const long found = return_thunk(depth - 1);
  asm volatile("" ::: "memory");
  return found;
}

TEST(Stubs, LongJumpsLeaveNothing) {
  ReturnProbe probe(return_thunk_site);
  lead_to(jump_out);
  static int rounds;
  for (rounds = 0; rounds < 100'000; ++rounds)
    if (::setjmp(g_place) == 0) return_thunk(3);
  EXPECT_EQ(probe.count() + probe.lost(), 0U);
  EXPECT_EQ(probe.missed(), 0U);
}

long deep(long depth) {
  if (depth == 0) return 0;
  const long found = return_thunk(depth - 1);
  asm volatile("" ::: "memory");
  return found + 1;
}

TEST(Stubs, AMillionFramesOnAStackOfTheirOwn) {
  ReturnProbe probe(return_thunk_site);
  lead_to(deep);
  constexpr std::size_t kStack = 256 << 20;
  void* stack = ::mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  static ucontext_t back, there;
  static long found = 0;
  ASSERT_EQ(::getcontext(&there), 0);
  there.uc_stack.ss_sp = stack, there.uc_stack.ss_size = kStack, there.uc_link = &back;
  ::makecontext(
      &there, [] { found = return_thunk(1'000'000); }, 0);
  ASSERT_EQ(::swapcontext(&back, &there), 0);
  ::munmap(stack, kStack);
  EXPECT_EQ(found, 1'000'000);
  EXPECT_EQ(probe.count() + probe.lost(), 1'000'001U);
  EXPECT_EQ(probe.missed(), 0U);
}

// `calls` functions that each call the thunk and return.
class CallSites {
 public:
  explicit CallSites(u32 count) : count_(count), code_(pages_near(word_of(return_thunk_site), count * kBytes)) {
    for (u32 i = 0; i < count; ++i) {
      u8* at = code_ + i * kBytes;
      constexpr u8 kCode[kBytes] = {0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 8, 0xc3};
      std::memcpy(at, kCode, kBytes);
      const auto distance = static_cast<u32>(word_of(return_thunk_site) - word_of(at + 9));
      std::memcpy(at + 5, &distance, 4);
    }
  }
  CallSites(const CallSites&) = delete;
  CallSites& operator=(const CallSites&) = delete;
  ~CallSites() { ::munmap(code_, count_ * kBytes); }
  long call(u32 site, long value) const { return reinterpret_cast<long (*)(long)>(code_ + site * kBytes)(value); }

 private:
  static constexpr u32 kBytes = 16;
  u32 count_;
  u8* code_;
};

TEST(Stubs, ThreadsThatComeToNewPairsAtOnce) {
  constexpr u32 kSites = 2000, kThreads = 4;
  const CallSites sites(kSites);
  ReturnProbe probe(return_thunk_site);
  lead_to(twice);
  std::atomic<u32> wrong = 0, ready = 0;
  std::vector<std::thread> threads;
  for (u32 t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      ++ready;
      while (ready < kThreads) continue;
      for (u32 i = 0; i < kSites; ++i) wrong += sites.call(i, i) != 2 * long{i};
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(probe.missed(), 0U);
  EXPECT_EQ(probe.count() + probe.lost(), kSites * kThreads);
}

// After that no test of this process finds a free one.
TEST(StubsAtTheEnd, MorePairsThanAPointMayHaveAreMissed) {
  constexpr u32 kSites = shared::kStubBudget + 1000;
  const CallSites sites(kSites);
  ReturnProbe probe(return_thunk_site);
  lead_to(twice);
  for (u32 round = 0; round < 2; ++round)
    for (u32 i = 0; i < kSites; ++i) EXPECT_EQ(sites.call(i, i), 2 * long{i});
  EXPECT_GE(probe.missed(), 2000U);
  EXPECT_EQ(probe.count() + probe.lost() + probe.missed(), 2 * kSites);
}

std::atomic<u64> g_good, g_bad, g_in_stubs;

// At any place where a signal finds the thread, leave_stub brings it to a place of the program, or the agent has it; its
// callers are found from there.
void look_from_handler(int, siginfo_t*, void* context) {
  const auto& frame = *static_cast<const agent::SignalFrame*>(context);
  const bool in_stub = frame.ip - word_of(agent::uprobe_return_stubs) < u64{shared::kReturnStubs} * shared::kStubUnit;
  g_in_stubs += in_stub;
  agent::SignalFrame left = frame;
  if (!agent::leave_stub(left)) return;
  void* frames[64];
  const int count = ::backtrace(frames, 64);
  ++(count > 3 ? g_good : g_bad);
}

long spin(long value) { return value; }

TEST(Stubs, AlarmsOnTheWayBack) {
  ReturnProbe probe(return_thunk_site);
  lead_to(spin);
  void* warm_up[4];
  ::backtrace(warm_up, 4);
  struct sigaction action {};
  action.sa_sigaction = look_from_handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ASSERT_EQ(::sigaction(SIGALRM, &action, nullptr), 0);
  timer_t timer{};
  ASSERT_EQ(::timer_create(CLOCK_MONOTONIC, nullptr, &timer), 0);
  const itimerspec pace{{0, 30'000}, {0, 30'000}};
  ::timer_settime(timer, 0, &pace, nullptr);
  u64 wrong = 0;
  for (long i = 0; i < 300'000; ++i) wrong += return_thunk(i) != i;
  ::timer_delete(timer);
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(g_bad, 0U);
  EXPECT_GT(g_in_stubs + g_good, 10U);
}

}  // namespace
}  // namespace uprobe::test
