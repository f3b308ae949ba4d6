// SPDX-License-Identifier: MIT
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "engine/process/credentials.h"

namespace uprobe::control {
namespace {

constexpr uid_t kUser = 65534;

// A child that changes its own rights and then waits to be examined.
class Child {
 public:
  explicit Child(const std::function<bool()>& change) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char done = change() ? 'y' : 'n';
      if (::write(ready[1], &done, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char done = 'n';
    is_changed_ = ::read(ready[0], &done, 1) == 1 && done == 'y';
    ::close(ready[0]);
    ::close(ready[1]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { end(); }

  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  bool is_changed() const { return is_changed_; }

 private:
  pid_t pid_ = 0;
  bool is_changed_ = false;
};

Credentials user(std::uint32_t id) {
  Credentials c;
  c.uids = c.gids = {id, id, id, id};
  c.bounding = (std::uint64_t{1} << 41) - 1;
  c.namespace_device = 4;
  c.user_namespace = 4026531837;
  return c;
}

Credentials root() {
  Credentials c = user(0);
  c.permitted = c.bounding;
  return c;
}

TEST(Credentials, ReadsTheStatusThatTheKernelWrites) {
  const auto found = parse_credentials(
      "Name:\tUid:\\n\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t27 4 \n"
      "CapInh:\t0000000000000000\nCapPrm:\t0000000000000400\nCapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\n");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->uids, (std::array<std::uint32_t, 4>{1000, 1001, 1002, 1003}));
  EXPECT_EQ(found->gids, (std::array<std::uint32_t, 4>{5, 6, 7, 8}));
  EXPECT_EQ(found->groups, (std::vector<std::uint32_t>{4, 27}));
  EXPECT_EQ(found->permitted, 0x400u);
  EXPECT_EQ(found->bounding, 0x1ffffffffffu);
}

TEST(Credentials, RefusesWhatIsCutOffOrSenseless) {
  const std::string whole = "Uid:\t1\t1\t1\t1\nGid:\t1\t1\t1\t1\nGroups:\t \nCapPrm:\t0\nCapEff:\t0\nCapBnd:\t1ff\n";
  EXPECT_TRUE(parse_credentials(whole));
  EXPECT_FALSE(parse_credentials(""));
  for (const char* line : {"Uid:", "Gid:", "CapPrm:", "CapBnd:"}) {
    std::string changed = whole;
    changed.replace(changed.find(line), 1, "X");
    EXPECT_FALSE(parse_credentials(changed)) << line;
  }
  EXPECT_FALSE(parse_credentials("Uid:\t1\t1\t1\nGid:\t1\t1\t1\t1\nGroups:\t\nCapPrm:\t0\nCapBnd:\t0\n"));
  EXPECT_FALSE(parse_credentials("Uid:\t1\t1\t1\t-1\nGid:\t1\t1\t1\t1\nGroups:\t\nCapPrm:\t0\nCapBnd:\t0\n"));
  EXPECT_FALSE(parse_credentials("Uid:\t1\t1\t1\t1\nGid:\t1\t1\t1\t1\nGroups:\t\nCapPrm:\tzz\nCapBnd:\t0\n"));
}

TEST(Credentials, WhatMakesAnotherDomain) {
  const auto differs = [](auto change) {
    Credentials other = user(1000);
    change(other);
    return !is_same_domain(other, user(1000));
  };
  EXPECT_TRUE(differs([](Credentials& c) { c.uids[3] = 0; }));
  EXPECT_TRUE(differs([](Credentials& c) { c.gids[0] = 0; }));
  EXPECT_TRUE(differs([](Credentials& c) { c.groups = {4}; }));
  EXPECT_TRUE(differs([](Credentials& c) { c.permitted = 1; }));
  EXPECT_TRUE(differs([](Credentials& c) { c.bounding = 0; }));
  EXPECT_TRUE(differs([](Credentials& c) { c.user_namespace = 1; }));
  EXPECT_TRUE(differs([](Credentials& c) { c.namespace_device = 1; }));
  EXPECT_FALSE(differs([](Credentials&) {}));
}

TEST(Credentials, WhatAProcessCanTakeBackMakesNone) {
  Credentials server = root();
  server.uids = {0, 1000, 0, 1000};
  server.gids = {0, 100, 0, 100};
  server.groups = {100};
  EXPECT_TRUE(is_same_domain(server, root()));
  EXPECT_TRUE(is_within(server, root()));
  EXPECT_TRUE(is_within(root(), server));
  server.permitted &= ~(std::uint64_t{1} << 6);
  EXPECT_FALSE(is_same_domain(server, root()));
  Credentials without_setgid = root();
  without_setgid.permitted = server.permitted;
  EXPECT_FALSE(is_same_domain(server, without_setgid)) << "its groups are for good";
}

TEST(Credentials, EqualOrLessPrivilege) {
  EXPECT_TRUE(is_within(user(1000), user(1000)));
  EXPECT_FALSE(is_within(user(1000), user(1001)));
  EXPECT_TRUE(is_within(user(1000), root()));
  EXPECT_FALSE(is_within(root(), user(1000)));
  Credentials able = user(1000);
  able.permitted = 1 << 10;
  EXPECT_TRUE(is_within(user(1000), able));
  EXPECT_FALSE(is_within(able, user(1000)));
  Credentials bound = user(0);  // uid 0, and the next execve gives it nothing
  bound.bounding = 0;
  EXPECT_TRUE(is_within(bound, root()));
  EXPECT_FALSE(is_within(user(1000), bound)) << "uid 0 alone has no rights over others";
  EXPECT_FALSE(is_within(user(0), bound)) << "the next execve gives it all";
  Credentials elsewhere = user(1000);
  elsewhere.user_namespace = 1;
  EXPECT_FALSE(is_within(elsewhere, root())) << "not known";
}

TEST(Credentials, WhatExecveGives) {
  EXPECT_FALSE(has_gained(user(1000), user(1000)));
  Credentials able = user(1000);
  able.permitted = 1 << 10;
  EXPECT_TRUE(has_gained(user(1000), able));
  EXPECT_FALSE(has_gained(able, user(1000)));
  EXPECT_TRUE(has_gained(user(1000), root()));
  EXPECT_TRUE(has_gained(root(), user(1000)));
}

TEST(Credentials, ForkedChildrenAreOfTheSameDomain) {
  const Child same([] { return true; });
  ASSERT_TRUE(same.is_changed());
  const auto ours = own_credentials(), theirs = credentials_of(same.pid());
  ASSERT_TRUE(ours && theirs);
  EXPECT_TRUE(is_same_domain(*ours, *theirs));
  EXPECT_EQ(ours->uids, theirs->uids);
  EXPECT_NE(ours->user_namespace, 0u);
}

TEST(Credentials, SeesEachKindOfChange) {
  if (::geteuid() != 0) GTEST_SKIP() << "changes of credentials need root";
  const auto ours = own_credentials();
  ASSERT_TRUE(ours);
  const auto expect_another = [&](const char* what, const std::function<bool()>& change) {
    const Child child(change);
    if (!child.is_changed()) return;  // not allowed here
    const auto theirs = credentials_of(child.pid());
    ASSERT_TRUE(theirs) << what;
    EXPECT_FALSE(is_same_domain(*theirs, *ours)) << what;
  };
  expect_another("setresuid", [] { return ::setresuid(kUser, kUser, kUser) == 0; });
  expect_another("setgroups and setresuid", [] {
    const gid_t groups[] = {kUser, 4242};
    return ::setgroups(2, groups) == 0 && ::setresuid(kUser, kUser, kUser) == 0;
  });
  expect_another("bounding set", [] { return ::prctl(PR_CAPBSET_DROP, 10) == 0; });
  expect_another("user namespace", [] { return ::unshare(CLONE_NEWUSER) == 0; });
}

TEST(Credentials, AProcessThatHasEndedHasNone) {
  Child child([] { return true; });
  const pid_t pid = child.pid();
  child.end();
  EXPECT_FALSE(credentials_of(pid));
}

TEST(MayTrace, OnesOwnAndThoseBelow) {
  const Child same([] { return true; });
  EXPECT_TRUE(may_trace(::getpid(), same.pid()));
  EXPECT_TRUE(may_trace(same.pid(), ::getpid()));
  const Child inside([] { return ::unshare(CLONE_NEWUSER) == 0; });
  if (!inside.is_changed()) GTEST_SKIP() << "no user namespaces here";
  EXPECT_TRUE(may_trace(::getpid(), inside.pid()));
  EXPECT_FALSE(may_trace(inside.pid(), ::getpid()));
}

TEST(MayTrace, NoOtherProcess) {
  if (::geteuid() != 0) GTEST_SKIP() << "changing users needs root";
  const auto drop = [] { return ::setgroups(0, nullptr) == 0 && ::setgid(kUser) == 0 && ::setuid(kUser) == 0; };
  const Child low(drop), as_low(drop);
  ASSERT_TRUE(low.is_changed() && as_low.is_changed());
  EXPECT_TRUE(may_trace(::getpid(), low.pid()));
  EXPECT_TRUE(may_trace(low.pid(), as_low.pid()));
  EXPECT_FALSE(may_trace(low.pid(), ::getpid()));
  const Child inside([&] { return drop() && ::unshare(CLONE_NEWUSER) == 0; });
  if (!inside.is_changed()) GTEST_SKIP() << "no user namespaces here";
  EXPECT_TRUE(may_trace(low.pid(), inside.pid()));  // owns the namespace
  EXPECT_FALSE(may_trace(inside.pid(), low.pid()));
}

}  // namespace
}  // namespace uprobe::control
