// SPDX-License-Identifier: MIT
// Processes as /proc lists them, and their ids in PID namespaces.
#include "engine/target/process_list.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "engine/target/process_stat.h"

namespace uprobe::target {
namespace {

TEST(ProcessList, HasThisProcessWithItsFolder) {
  const auto processes = list_processes();
  const auto own =
      std::find_if(processes.begin(), processes.end(), [](const auto& one) { return one.pid == ::getpid(); });
  ASSERT_NE(own, processes.end());
  EXPECT_NE(own->entry, 0U);
}

TEST(NamespaceIds, AreReadFromTheOutermostInwards) {
  EXPECT_EQ(namespace_ids("Name:\tx\nNSpid:\t812\nNSpgid:\t7\n"), (std::vector<pid_t>{812}));
  EXPECT_EQ(namespace_ids("Tgid:\t812\nNSpid:\t812\t31\t1\nNSpgid:\t7\n"), (std::vector<pid_t>{812, 31, 1}));
  EXPECT_EQ(namespace_ids("Tgid:\t812\nNSpid:\t812\t31"), (std::vector<pid_t>{812, 31}));
}

TEST(ThreadRun, IsThatOfAThread) {
  ::usleep(1000);  // the kernel counts at the end of a turn
  const ThreadRun before = run_of(::getpid(), ::gettid());
  EXPECT_EQ(before.state, 'R');
  EXPECT_GT(before.ran_ns, 0U);
  EXPECT_GT(before.turns, 0U);
  ::usleep(1000);
  EXPECT_GT(run_of(::getpid(), ::gettid()).turns, before.turns);
  EXPECT_EQ(run_of(::getpid(), 0x3ffffff).state, 'X');
  EXPECT_EQ(run_of(::getpid(), ::getppid()).state, 'X') << "a thread of another process";
}

TEST(ThreadCalled, IsTheOneWithThatNumber) {
  EXPECT_EQ(thread_called(::getpid(), ::gettid()), ::gettid());
  EXPECT_EQ(thread_called(::getpid(), 0x3ffffff), 0);
  EXPECT_EQ(thread_called(::getpid(), ::getppid()), 0);
}

TEST(NamespaceIds, OfAnotherTextAreNone) {
  for (const char* text : {"", "Name:\tx\n", "NSpid:\t5\n", "\nNSpid:\n", "\nNSpid:\tx\n", "\nNSpid:5\n"})
    EXPECT_TRUE(namespace_ids(text).empty()) << text;
}

}  // namespace
}  // namespace uprobe::target
