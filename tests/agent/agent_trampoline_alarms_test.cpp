// SPDX-License-Identifier: MIT
// Signals at random instructions of hits: for a thread inside a trampoline the agent finds the place where it leaves it, and
// takes no other thread for one.
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>

#include "preload/trampolines.h"
#include "tests/agent/hit_state.h"
#include "tests/agent/jump_probe.h"
#include "tests/agent/torture.h"

extern "C" {
void hit_framed();
extern const char hit_framed_site[];
extern const char __executable_start[], etext[];
}

namespace uprobe::test {
namespace {

std::atomic<u64> g_inside, g_outside, g_misjudged;
u64 g_island = 0, g_copy = 0;

void judge(int, siginfo_t*, void* context) {
  const auto& frame = *static_cast<const agent::SignalFrame*>(context);
  agent::SignalFrame left = frame;
  const bool in_trampoline = frame.ip >= g_island && frame.ip < g_copy;
  if (agent::leave_trampoline(*agent::uprobe_block, left) != agent::Jump::no)
    g_misjudged += left.ip != word_of(hit_framed_site) && left.ip != g_copy;
  else
    g_misjudged += in_trampoline;
  ++(in_trampoline ? g_inside : g_outside);
}

class Alarms : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(FastAndNot, Alarms, testing::Bool(), [](const auto& p) { return p.param ? "fast" : "agent"; });

TEST_P(Alarms, FindTheWayOut) {
  install_agent_handlers();
  if (point_block().head.rseq_offset == 0) GTEST_SKIP() << "no rseq here";
  std::vector<shared::Insn> program = torture_program();
  program.erase(program.end() - 4, program.end() - 1);  // the string
  OneEvent session(program, 32, static_cast<u32>(::sysconf(_SC_NPROCESSORS_CONF)), 4, 1 << 20);
  JumpProbe probe(hit_framed_site);
  probe.arm(session, GetParam());
  g_island = probe.address(), g_copy = probe.copy();
  probe.block().head.agent_text = word_of(__executable_start);
  probe.block().head.agent_text_end = word_of(etext);
  g_inside = g_outside = g_misjudged = 0;
  struct sigaction action {};
  action.sa_sigaction = judge;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(::sigaction(SIGALRM, &action, nullptr), 0);
  timer_t timer{};
  ASSERT_EQ(::timer_create(CLOCK_MONOTONIC, nullptr, &timer), 0);
  const itimerspec pace{{0, 50'000}, {0, 50'000}};
  ::timer_settime(timer, 0, &pace, nullptr);
  while (g_inside + g_outside < 6000)
    for (int i = 0; i < 1000; ++i) hit_framed();
  ::timer_delete(timer);
  EXPECT_EQ(g_misjudged, 0U);
  EXPECT_GT(g_inside, 100U);
}

}  // namespace
}  // namespace uprobe::test
