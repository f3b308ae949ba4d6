// SPDX-License-Identifier: MIT
// Handlers that run in the middle of hits call backtrace(): it leads from the trampoline to the probed instruction and on to
// its callers.
#include <execinfo.h>
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <functional>

#include "arch/code/unwind.h"
#include "preload/trampolines.h"
#include "tests/agent/hit_state.h"
#include "tests/agent/jump_probe.h"
#include "tests/agent/torture.h"

extern "C" {
void __register_frame(void*);
void __deregister_frame(void*);
void hit_unwound();
extern const char hit_unwound_site[];
void uprobe_rseq_abort();
extern const char __executable_start[], etext[];
}

namespace uprobe::test {
namespace {

std::atomic<u64> g_good, g_bad, g_inside, g_in_agent, g_misjudged;
u64 g_island = 0, g_copy = 0;

// The caller of the probed function: backtrace() has to find its frame.
__attribute__((noinline)) void call_unwound() {
  for (int i = 0; i < 1000; ++i) hit_unwound();
  asm volatile("");  // no tail call
}

// Its caller, in which the alarms come.
std::function<void()> g_start_pace, g_stop_pace;
__attribute__((noinline)) void run_until(u64 alarms) {
  g_start_pace();
  while (g_good + g_bad < alarms) call_unwound();
  g_stop_pace();
  asm volatile("");
}

bool is_in(u64 address, u64 start, u64 bytes) { return address - start < bytes; }

void look_back(int, siginfo_t*, void* context) {
  void* frames[64];
  const int count = ::backtrace(frames, 64);
  bool inside = false, at_probe = false, at_caller = false, at_root = false, in_agent = false;
  for (int i = 0; i < count; ++i) {
    const u64 address = word_of(frames[i]);
    inside = inside || is_in(address, g_island, 4 * kPage);
    at_probe = at_probe || is_in(address, word_of(hit_unwound_site), 6);
    at_caller = at_caller || is_in(address, word_of(call_unwound), 128);
    at_root = at_root || is_in(address, word_of(reinterpret_cast<void*>(run_until)), 128);
    in_agent = in_agent || address == word_of(uprobe_rseq_abort);
  }
  const auto& frame = *static_cast<const agent::SignalFrame*>(context);
  agent::SignalFrame left = frame;
  const bool in_trampoline = frame.ip >= g_island && frame.ip < g_copy;
  if (agent::leave_trampoline(*agent::uprobe_block, left) != agent::Jump::no)
    g_misjudged += left.ip != word_of(hit_unwound_site) && left.ip != g_copy;
  else
    g_misjudged += in_trampoline;
  const bool good = at_root && (!inside || (at_probe && at_caller));
  ++(good ? g_good : g_bad);
  g_inside += inside;
  g_in_agent += in_agent;
}

class Unwind : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(FastAndNot, Unwind, testing::Bool(), [](const auto& p) { return p.param ? "fast" : "agent"; });

TEST_P(Unwind, FromRandomAlarms) {
  install_agent_handlers();
  if (point_block().head.rseq_offset == 0) GTEST_SKIP() << "no rseq here";
  std::vector<shared::Insn> program = torture_program();
  program.erase(program.end() - 4, program.end() - 1);  // the string
  OneEvent session(program, 32, static_cast<u32>(::sysconf(_SC_NPROCESSORS_CONF)), 4, 1 << 20);
  JumpProbe probe(hit_unwound_site);
  probe.arm(session, GetParam());
  const arch::CopyMark mark{.offset = 0, .pushed = 0, .original = Addr{probe.site()}};
  const arch::PlacedCopy copy{Addr{probe.copy()}, 10, {&mark, 1}};
  auto frames = arch::make_unwind(probe.body(), Addr{probe.address()}, Addr{probe.site()}, copy);
  __register_frame(frames.data());
  g_island = probe.address(), g_copy = probe.copy();
  probe.block().head.agent_text = word_of(__executable_start);
  probe.block().head.agent_text_end = word_of(etext);
  g_good = g_bad = g_inside = g_in_agent = g_misjudged = 0;
  void* warm_up[4];
  ::backtrace(warm_up, 4);
  struct sigaction action {};
  action.sa_sigaction = look_back;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(::sigaction(SIGALRM, &action, nullptr), 0);
  timer_t timer{};
  ASSERT_EQ(::timer_create(CLOCK_MONOTONIC, nullptr, &timer), 0);
  const itimerspec pace{{0, 50'000}, {0, 50'000}};
  g_start_pace = [&] { ::timer_settime(timer, 0, &pace, nullptr); };
  g_stop_pace = [&] { ::timer_delete(timer); };
  run_until(6000);
  __deregister_frame(frames.data());
  std::printf("%llu good, %llu bad, %llu of them below a trampoline, %llu in the agent's section\n",
              static_cast<unsigned long long>(g_good), static_cast<unsigned long long>(g_bad),
              static_cast<unsigned long long>(g_inside), static_cast<unsigned long long>(g_in_agent));
  EXPECT_EQ(g_bad, 0U);
  EXPECT_EQ(g_misjudged, 0U) << "leave_trampoline";
  EXPECT_GT(g_inside, 1000U);
  EXPECT_GE(g_in_agent, GetParam() ? 0U : 100U);
}

}  // namespace
}  // namespace uprobe::test
