// SPDX-License-Identifier: MIT
// In each case a tool, in a process of its own with a guardian, is stopped by SIGSTOP.
#include "engine/target/guardian.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "engine/base/procfs.h"
#include "engine/base/roles.h"
#include "engine/target/process_list.h"
#include "engine/target/process_stat.h"
#include "engine/target/stopped_process.h"

namespace uprobe::target {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kDone = 7;
constexpr auto kPatience = 60s;  // on a crowded machine, for what takes a quarter of a second

// A process that does `work` and exits with 7.
template <class Work>
pid_t start(Work work) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    ::_exit(kDone);
  }
  return pid;
}

char state_of(pid_t pid) {
  const auto stat = stat_of(pid);
  return stat ? stat->state : '?';
}

bool comes_to(pid_t pid, char state) {
  for (const auto end = Clock::now() + kPatience; Clock::now() < end; ::usleep(5000))
    if (state_of(pid) == state) return true;
  return false;
}

// Its exit code within that time; -1: it has not exited.
int exit_within(pid_t pid, std::chrono::milliseconds time) {
  for (const auto end = Clock::now() + time; Clock::now() < end; ::usleep(5000)) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
  }
  return -1;
}

TEST(Guardian, AToolThatHoldsAProgramDoesNotStayStopped) {
  const pid_t program = start([] {
    for (;;) ::pause();
  });
  const pid_t tool = start([program] {
    start_guardian();
    const auto held = StoppedProcess::hold(program);
    if (!held) ::_exit(1);
    ::raise(SIGSTOP);
  });
  EXPECT_EQ(exit_within(tool, kPatience), kDone);
  ::kill(tool, SIGKILL);
  EXPECT_TRUE(comes_to(program, 'S'));
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
}

// As when programs are followed, or found while the session runs.
TEST(Guardian, AnyThreadOfTheToolMayHoldTheProgram) {
  const pid_t program = start([] {
    for (;;) ::pause();
  });
  const pid_t tool = start([program] {
    start_guardian();
    std::thread([program] {
      const auto held = StoppedProcess::hold(program);
      if (!held) ::_exit(1);
      ::raise(SIGSTOP);
    }).join();
  });
  EXPECT_EQ(exit_within(tool, kPatience), kDone);
  ::kill(tool, SIGKILL);
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
}

// Of this program: other tools may be at work on the machine.
pid_t newest_guardian() {
  const std::string own = procfs::link("/proc/self/exe");
  pid_t newest = 0;
  for (const ProcessEntry& one : list_processes()) {
    const auto stat = stat_of(one.pid);
    if (stat && stat->name == kGuardianName && procfs::link(procfs::path(one.pid, "exe")) == own)
      newest = std::max(newest, one.pid);
  }
  return newest;
}

TEST(Guardian, DoesNotStayStoppedItself) {
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  const pid_t program = start([] {
    for (;;) ::pause();
  });
  const pid_t tool = start([program, &gate] {
    start_guardian();
    const auto held = StoppedProcess::hold(program);
    char word = 0;
    if (!held || ::read(gate[0], &word, 1) != 1) ::_exit(1);
    ::raise(SIGSTOP);
  });
  ASSERT_TRUE(comes_to(program, 't'));
  pid_t guardian = 0;
  for (const auto end = Clock::now() + kPatience; guardian < tool && Clock::now() < end; ::usleep(5000))
    guardian = newest_guardian();
  ASSERT_GT(guardian, tool);
  for (int i = 0; i < 1000 && state_of(guardian) != 'T'; ++i) {
    ::kill(guardian, SIGSTOP);
    ::usleep(1000);
  }
  EXPECT_EQ(::write(gate[1], "x", 1), 1);
  EXPECT_EQ(exit_within(tool, kPatience), kDone);
  ::kill(tool, SIGKILL);
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
  ::close(gate[0]), ::close(gate[1]);
}

TEST(Guardian, AToolThatHoldsNothingStaysStopped) {
  const pid_t tool = start([] {
    start_guardian();
    ::raise(SIGSTOP);
  });
  ASSERT_TRUE(comes_to(tool, 'T'));
  EXPECT_EQ(exit_within(tool, 500ms), -1);
  EXPECT_EQ(state_of(tool), 'T');
  ::kill(tool, SIGCONT);
  EXPECT_EQ(exit_within(tool, kPatience), kDone);
}

TEST(Guardian, EveryStopIsUndoneAlsoOfOneThatIsAboutToLaunch) {
  const pid_t tool = start([] {
    start_guardian();
    const pid_t child = start([] {
      for (;;) ::pause();
    });
    for (int i = 0; i < 3; ++i) ::raise(SIGSTOP);
    ::kill(child, SIGKILL);
  });
  EXPECT_EQ(exit_within(tool, kPatience), kDone);
}

TEST(Guardian, AProcessThatWaitsForTheToolIsHeld) {
  const pid_t waiting = start([] {
    for (;;) ::pause();
  });
  const pid_t tool = start([waiting] {
    start_guardian(waiting);
    ::raise(SIGSTOP);
  });
  EXPECT_EQ(exit_within(tool, kPatience), kDone);
  ::kill(waiting, SIGKILL);
  ::waitpid(waiting, nullptr, 0);
}

TEST(Guardian, IsNoChildAndEndsWithTheTool) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t tool = start([] {
    start_guardian();
    if (::waitpid(-1, nullptr, __WALL) != -1) ::_exit(1);  // there is no child
    for (;;) ::pause();
  });
  ::close(ends[1]);
  ::usleep(50'000);
  ::kill(tool, SIGKILL);
  ::waitpid(tool, nullptr, 0);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0) << "the guardian has let go of what it inherited";
  ::close(ends[0]);
}

}  // namespace
}  // namespace uprobe::target
