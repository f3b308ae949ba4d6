// SPDX-License-Identifier: MIT
// /proc: paths, links, names and the fields of status files.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <climits>

#include "engine/base/procfs.h"

namespace uprobe {
namespace {

TEST(Procfs, MakesPaths) {
  EXPECT_EQ(procfs::path(7), "/proc/7");
  EXPECT_EQ(procfs::path(7, "ns/pid"), "/proc/7/ns/pid");
  EXPECT_EQ(procfs::path(7, 8, "status"), "/proc/7/task/8/status");
}

TEST(Procfs, FindsFieldsByTheirWholeName) {
  constexpr std::string_view kStatus =
      "Name:\ta:\tb\nNSTgid:\t5\nTgid:\t12\nEmpty:\t\nSeccomp_filters:\t3\nSeccomp:\t2";
  EXPECT_EQ(procfs::field(kStatus, "Name"), "a:\tb");
  EXPECT_EQ(procfs::field(kStatus, "Empty"), "");
  EXPECT_EQ(procfs::field(kStatus, "Seccomp"), "2") << "the last line may have no end";
  EXPECT_EQ(procfs::field(kStatus, "Tgi"), std::nullopt);
  EXPECT_EQ(procfs::field("", "Name"), std::nullopt);
  EXPECT_EQ(procfs::number(kStatus, "Tgid"), 12);
  EXPECT_EQ(procfs::number(kStatus, "Name"), 0);
  EXPECT_EQ(procfs::number(kStatus, "Absent"), 0);
}

TEST(Procfs, TakesANameOfAStatusFileOnlyWhereItIsWhole) {
  EXPECT_EQ(procfs::name_in("Name:\tan odd name\nUmask:\t0022\n"), "an odd name");
  EXPECT_EQ(procfs::name_in("Name:\ttwo\\nlines\n"), "");
  EXPECT_EQ(procfs::name_in("Pid:\t1\n"), "");
}

TEST(Procfs, ReadsThisProcess) {
  const auto status = procfs::read(::getpid(), "status");
  ASSERT_TRUE(status);
  EXPECT_EQ(procfs::number(*status, "Tgid"), ::getpid());
  EXPECT_EQ(procfs::number(*status, "PPid"), ::getppid());
  EXPECT_EQ(procfs::number(*procfs::read(::getpid(), ::gettid(), "status"), "Pid"), ::gettid());
  EXPECT_EQ(procfs::link("/proc/self"), std::to_string(::getpid()));
  EXPECT_EQ(procfs::link("/proc/self/status"), "");
}

TEST(Procfs, NamesProcesses) {
  std::string old(16, '\0');
  ASSERT_EQ(::prctl(PR_GET_NAME, old.data()), 0);
  ASSERT_EQ(::prctl(PR_SET_NAME, "a (b"), 0);
  EXPECT_EQ(procfs::name_of(::getpid()), "a (b");
  EXPECT_EQ(procfs::called(::getpid()), "process " + std::to_string(::getpid()) + " (a (b)");
  ::prctl(PR_SET_NAME, old.c_str());
  EXPECT_EQ(procfs::name_of(INT_MAX), "");
  EXPECT_EQ(procfs::called(INT_MAX), "process 2147483647");
}

}  // namespace
}  // namespace uprobe
