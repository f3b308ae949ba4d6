// SPDX-License-Identifier: MIT
// Real breakpoints in this very program: a copy nearby, the agent's handlers, and threads that must not notice.
#include <gtest/gtest.h>
#include <setjmp.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

#include <atomic>
#include <thread>

#include "arch/code/relocate.h"
#include "engine/patch/islands.h"
#include "engine/process/block.h"
#include "engine/trace/reader.h"
#include "preload/thread.h"
#include "preload/virtual_mask.h"
#include "tests/agent/hit_state.h"

namespace uprobe::test {
namespace {

// This process as a target.
class SelfTarget : public target::Target {
 public:
  pid_t pid() const override { return ::getpid(); }
  Result<std::vector<target::Mapping>> maps() override { return files_.maps(); }
  Status read(Addr from, void* to, std::size_t bytes) override { return files_.read(from, to, bytes); }
  Status write(Addr to, const void* from, std::size_t bytes) override { return files_.write(to, from, bytes); }
  Result<std::int64_t> system_call(long number, const std::array<std::uint64_t, 6>& a) override {
    const long result = ::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    return std::int64_t{result == -1 ? -errno : result};
  }

 private:
  target::ProcessFiles files_ = target::ProcessFiles::open(::getpid()).take();
};

// A session over this process: one event that records rbx and rdi, and what rsi points to.
class SelfSession {
 public:
  explicit SelfSession(u64 ring_bytes = 1u << 20) {
    using shared::Insn;
    using shared::Op;
    program_.layout.fixed_bytes = 40;
    const auto reg = [](shared::Reg r) { return Insn{Op::load_register, static_cast<u8>(r), 0, 0, 0}; };
    program_.insns = {Insn{Op::begin, 0, 0, 0, 0},        reg(shared::Reg::bx),     Insn{Op::store_value, 8, 0, 16, 0},
                      Insn{Op::begin, 0, 0, 0, 0},        reg(shared::Reg::di),     Insn{Op::store_value, 8, 0, 24, 0},
                      Insn{Op::begin, 0, 0, 0, 0},        reg(shared::Reg::si),     Insn{Op::dereference, 0, 0, 0, 0},
                      Insn{Op::store_value, 8, 0, 32, 0}, Insn{Op::end, 0, 0, 0, 0}};
    trace::AreaSpec spec{.events = {&program_}, .ring_bytes = ring_bytes, .ring_count = 6};
    area_.emplace(trace::Area::create_private(spec).take());
    area_->set_state(shared::SessionState::recording);
    const u64 bytes = control::Block::bytes_for({16});
    place_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    block_.emplace(control::Block::create(target_, Addr{word_of(place_)}, {16}).take());
    block_->head().sessions[0].area = word_of(area_->base());
    block_->head().session_count = 1;
    EXPECT_TRUE(block_->write_head(target_));
    agent::uprobe_block = static_cast<shared::ProcessBlock*>(place_);
    install_agent_handlers();
    reader_.emplace(*area_, clock_, names_);
  }
  ~SelfSession() {
    for (const auto& undo : block_->undo()) EXPECT_TRUE(target_.write(Addr{undo.address}, undo.original, 1));
  }

  // In the armer's order: slot, tables, then the breakpoint.
  void arm(const char* site) {
    const Addr at{word_of(site)};
    const arch::Bytes code(reinterpret_cast<const u8*>(site), arch::kMaxInsnBytes);
    const auto insn = arch::decode(code, at);
    auto room = control::island_room(target_, *block_, at, at + 16, 64);
    ASSERT_TRUE(insn && room);
    const Addr copy_at = *room + shared::kCopyInSlot;
    const auto copy = arch::displace(code, at, copy_at);
    ASSERT_TRUE(copy);
    const auto index = static_cast<u32>(block_->points().size());
    const shared::SlotHead head{.address = at.value, .point = index, .event = shared::kAskAgent};
    ASSERT_TRUE(target_.write(*room, &head, sizeof head));
    ASSERT_TRUE(target_.write(copy_at, copy->data(), copy->size()));
    control::NewPoint point;
    point.address = at, point.copy = copy_at, point.copy_bytes = static_cast<u32>(copy->size());
    point.code_bytes = insn->length;
    point.insn.assign(code.begin(), code.begin() + insn->length);
    point.consumers = block_->list_for({{.session = 0, .event = 0, .next = 0}}, false).take();
    ASSERT_TRUE(block_->add(target_, {point}));
    const u8 breakpoint = 0xcc;
    ASSERT_TRUE(target_.write(at, &breakpoint, 1));
  }

  shared::ProcessBlock& block() { return *agent::uprobe_block; }
  // Counts the records read so far, and the hits accounted for.
  u64 take(const trace::Sink& sink = [](const trace::EventRecord&) {}) {
    reader_->poll([&](const trace::EventRecord& record) {
      ++records_;
      sink(record);
    });
    return records_;
  }
  u64 finish(const trace::Sink& sink = [](const trace::EventRecord&) {}) {
    reader_->finish([&](const trace::EventRecord& record) {
      ++records_;
      sink(record);
    });
    const trace::ReaderCounts& counts = reader_->counts();
    EXPECT_EQ(counts.damaged, 0U);
    EXPECT_EQ(counts.missing, 0U);
    EXPECT_EQ(counts.bad_stamps, 0U);
    // Not order_breaks: a crowded machine keeps a thread in the middle of a hit for longer than the reader waits.
    const shared::EventCounts event = area_->counts(0);
    return records_ + event.lost_full + event.lost_busy + event.lost_too_big;
  }
  u64 records() const { return records_; }

 private:
  SelfTarget target_;
  program::EventProgram program_;
  std::optional<trace::Area> area_;
  void* place_ = nullptr;
  std::optional<control::Block> block_;
  trace::Clock clock_ = trace::Clock::start();
  trace::TaskNames names_;
  std::optional<trace::Reader> reader_;
  u64 records_ = 0;
};

class AltStack {
 public:
  explicit AltStack(std::size_t bytes) : memory_(bytes) {
    const stack_t stack{.ss_sp = memory_.data(), .ss_flags = 0, .ss_size = bytes};
    EXPECT_EQ(::sigaltstack(&stack, &before_), 0);
  }
  ~AltStack() { ::sigaltstack(&before_, nullptr); }

 private:
  std::vector<u8> memory_;
  stack_t before_{};
};

TEST(Hit, TheStateWithoutABreakpointIsKept) {
  if (!has_avx()) GTEST_SKIP() << "no AVX here";
  for (const u64 flags : kFlagSets) EXPECT_TRUE(passes_unnoticed(1, flags)) << std::hex << flags;
}

TEST(Hit, RegistersFlagsVectorsAndRedZoneSurvive) {
  if (!has_avx()) GTEST_SKIP() << "no AVX here";
  SelfSession session;
  session.arm(hit_site);
  u64 hits = 0;
  for (u64 seed = 0; seed < 50; ++seed)
    for (const u64 flags : kFlagSets) {
      EXPECT_TRUE(passes_unnoticed(seed, flags)) << seed << " " << std::hex << flags;
      ++hits;
    }
  EXPECT_EQ(session.finish(), hits);
  EXPECT_EQ(session.records(), hits);
}

TEST(Hit, AlsoOnAnAlternateStack) {
  if (!has_avx()) GTEST_SKIP() << "no AVX here";
  SelfSession session;
  session.arm(hit_site);
  const AltStack stack(65536);
  for (const u64 flags : kFlagSets) EXPECT_TRUE(passes_unnoticed(9, flags)) << std::hex << flags;
  EXPECT_EQ(session.finish(), std::size(kFlagSets));
}

TEST(Hit, WhatIsRecordedIsTheStateBeforeTheInstruction) {
  if (!has_avx()) GTEST_SKIP() << "no AVX here";
  SelfSession session;
  session.arm(hit_site);
  const u64 pointed_to = 0x123456789abcdef0;
  HitState in = make_state(4, 0), out{};
  in.registers[4] = word_of(&pointed_to);
  hit_check(&in, &out);
  in.registers[4] = 0x8000000000000000;  // not canonical: the value is lost, but not the hit
  hit_check(&in, &out);
  EXPECT_EQ(out.registers[4], in.registers[4]);
  std::vector<std::vector<u8>> payloads;
  session.finish([&](const trace::EventRecord& record) {
    payloads.emplace_back(record.payload.begin(), record.payload.end());
    EXPECT_EQ(record.tid, static_cast<u32>(::gettid()));
  });
  ASSERT_EQ(payloads.size(), 2U);
  const auto word = [&](std::size_t record, std::size_t at) {
    u64 value = 0;
    std::memcpy(&value, payloads[record].data() + at, sizeof value);
    return value;
  };
  EXPECT_EQ(word(0, 8), word_of(hit_site));
  EXPECT_EQ(word(0, 16), in.registers[1]);
  EXPECT_EQ(word(0, 24), in.registers[5]);
  EXPECT_EQ(word(0, 32), pointed_to);
  EXPECT_EQ(word(1, 32), 0U);
}

// Timers at 5 kHz in every thread; their handlers hit too, in the middle of hits.
std::atomic<u64> g_hits{0}, g_wrong{0};

void timer_handler(int) {
  const int error = errno;
  for (long i = 0; i < 2; ++i) {
    if (hit_simple(i) != i + 1) ++g_wrong;
    ++g_hits;
  }
  errno = error;
}

timer_t start_timer() {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID, event.sigev_signo = SIGPROF;
  event._sigev_un._tid = ::gettid();
  timer_t timer{};
  EXPECT_EQ(::timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
  const itimerspec pace{.it_interval = {0, 200'000}, .it_value = {0, 200'000}};
  EXPECT_EQ(::timer_settime(timer, 0, &pace, nullptr), 0);
  return timer;
}

void hit_with_timers(bool alternate, u64 rounds) {
  std::vector<u8> memory(65536);
  const stack_t stack{.ss_sp = memory.data(), .ss_flags = alternate ? 0 : SS_DISABLE, .ss_size = memory.size()};
  ::sigaltstack(&stack, nullptr);
  const timer_t timer = start_timer();
  for (u64 i = 0; i < rounds; ++i) {
    if (!passes_unnoticed(i, kFlagSets[i % std::size(kFlagSets)])) ++g_wrong;
    ++g_hits;
  }
  ::timer_delete(timer);
  const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  ::sigaltstack(&none, nullptr);
}

TEST(Hit, ThreadsWithTimersWhoseHandlersHitToo) {
  if (!has_avx()) GTEST_SKIP() << "no AVX here";
  g_hits = g_wrong = 0;
  SelfSession session;
  session.arm(hit_site);
  session.arm(hit_simple_site);
  struct sigaction action {};
  action.sa_handler = timer_handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ASSERT_EQ(::sigaction(SIGPROF, &action, nullptr), 0);
  std::atomic<int> running{4};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      hit_with_timers(t % 2 == 0, 20'000);
      --running;
    });
  while (running != 0) {
    session.take();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(g_wrong, 0U);
  EXPECT_EQ(session.finish(), g_hits);
}

// The agent passes the program's own signals on.
sigjmp_buf g_back;
volatile u64 g_seen_ip = 0;
volatile u64 g_seen_address = 0;

void fault_handler(int, siginfo_t* info, void* context) {
  g_seen_ip = static_cast<u64>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  g_seen_address = word_of(info->si_addr);
  siglongjmp(g_back, 1);
}

// A load whose fault a jump leaves.
__attribute__((noinline)) void load_and_come_back(u64 address) {
  g_seen_ip = 0;
  g_seen_address = 0;
  if (sigsetjmp(g_back, 1) == 0) hit_load(reinterpret_cast<const long*>(address));
}

void set_handler(shared::ProcessBlock& block, int signal, void (*handler)(int, siginfo_t*, void*), u64 flags = 0) {
  const shared::KernelSigaction action{reinterpret_cast<u64>(handler), SA_SIGINFO | shared::kSaRestorer | flags,
                                       word_of(agent::uprobe_restorer), 0};
  ASSERT_EQ(agent::app_sigaction(block, static_cast<u64>(signal), word_of(&action), 0, 8), 0);
}

TEST(Fault, InACopyItHasTheOriginalAddress) {
  SelfSession session;
  session.arm(hit_load_site);
  set_handler(session.block(), SIGSEGV, fault_handler);
  for (int i = 0; i < 3; ++i) {
    load_and_come_back(16);
    EXPECT_EQ(g_seen_ip, word_of(hit_load_site));
    EXPECT_EQ(g_seen_address, 16U);
  }
  const long value = 5;
  EXPECT_EQ(hit_load(&value), 5);
  EXPECT_EQ(session.finish(), 4U);
}

int wait_status(const std::function<void()>& child) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(20);
    child();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

TEST(Fault, WithoutAHandlerTheProgramDiesAsItWould) {
  SelfSession session;
  session.arm(hit_load_site);
  EXPECT_EQ(WTERMSIG(wait_status([] { hit_load(nullptr); })), SIGSEGV);
  EXPECT_EQ(WTERMSIG(wait_status([] { hit_foreign(); })), SIGTRAP);
  EXPECT_EQ(WTERMSIG(wait_status([] { ::raise(SIGBUS); })), SIGBUS);
  EXPECT_EQ(WTERMSIG(wait_status([] { ::raise(SIGTRAP); })), SIGTRAP);
}

TEST(Fault, AnIgnoredSignalThatIsSentIsIgnored) {
  SelfSession session;
  const shared::KernelSigaction ignore{1, 0, 0, 0};
  EXPECT_EQ(wait_status([&] {
              agent::begin_process(session.block());  // as at a fork in a program
              for (const u64 signal : {u64{SIGSEGV}, u64{SIGTRAP}})
                agent::app_sigaction(session.block(), signal, word_of(&ignore), 0, 8);
              ::raise(SIGSEGV);
              ::raise(SIGTRAP);
            }),
            0);
}

void trap_handler(int, siginfo_t*, void* context) {
  g_seen_ip = static_cast<u64>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
}

TEST(Fault, ABreakpointOfTheProgramReachesItsHandlerAndGoesOn) {
  SelfSession session;
  set_handler(session.block(), SIGTRAP, trap_handler);
  hit_foreign();
  EXPECT_EQ(g_seen_ip, word_of(hit_foreign) + 1);
  set_handler(session.block(), SIGTRAP, trap_handler, static_cast<u32>(SA_RESETHAND));
  hit_foreign();
  EXPECT_EQ(WTERMSIG(wait_status([] { hit_foreign(); })), SIGTRAP) << "the handler was for one time";
}

// Inside a handler of SIGSEGV another fault would kill: nothing is fetched there, but the hit is recorded.
void hit_in_fault_handler(int, siginfo_t*, void*) {
  hit_simple(1);
  siglongjmp(g_back, 1);
}

TEST(Fault, HitsInsideAFaultHandler) {
  SelfSession session;
  session.arm(hit_simple_site);
  set_handler(session.block(), SIGSEGV, hit_in_fault_handler);
  load_and_come_back(0);
  EXPECT_EQ(session.finish(), 1U);
}

}  // namespace
}  // namespace uprobe::test
