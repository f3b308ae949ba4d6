// SPDX-License-Identifier: MIT
#include "engine/target/stopped_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace uprobe::test {
namespace {

using target::StoppedProcess;

pid_t start_sleeper() {
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (;;) ::pause();
}

TEST(StoppedProcessTest, MakesACallAndLetsGo) {
  const pid_t child = start_sleeper();
  auto held = StoppedProcess::hold(child);
  ASSERT_TRUE(held) << held.error().text;
  EXPECT_EQ((*held)->threads().size(), 1u);
  const auto seen = (*held)->system_call(SYS_getpid, {});
  ASSERT_TRUE(seen) << seen.error().text;
  EXPECT_EQ(*seen, child);
  held->reset();
  EXPECT_EQ(::kill(child, SIGTERM), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

// The part of the program that holds the child must not take the status for which the parent waits.
TEST(StoppedProcessTest, LeavesTheEndOfAnOwnChildToItsParent) {
  const pid_t child = start_sleeper();
  auto held = StoppedProcess::hold(child);
  ASSERT_TRUE(held) << held.error().text;
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_FALSE((*held)->system_call(SYS_getpid, {}));
  held->reset();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(StoppedProcessTest, KnowsItsOwnChildren) {
  const pid_t child = start_sleeper();
  EXPECT_TRUE(target::is_own_child(child));
  EXPECT_FALSE(target::is_own_child(::getpid()));
  EXPECT_FALSE(target::is_own_child(1));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace uprobe::test
