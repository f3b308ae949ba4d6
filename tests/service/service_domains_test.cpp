// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <set>

#include "engine/service/domains.h"
#include "engine/service/session_watch.h"

namespace uprobe::control {
namespace {

Credentials user(std::uint32_t id) {
  Credentials c;
  c.uids = c.gids = {id, id, id, id};
  c.user_namespace = 1;
  return c;
}

TEST(Domains, EqualCredentialsShareAPart) {
  std::size_t made = 0;
  Domains domains([&made]() -> Result<std::size_t> { return ++made; });
  EXPECT_EQ(*domains.part_for(user(0)), 0u);
  EXPECT_EQ(made, 0u) << "the first part is there";
  EXPECT_EQ(*domains.part_for(user(5)), 1u);
  EXPECT_EQ(*domains.part_for(user(0)), 0u);
  EXPECT_EQ(*domains.part_for(user(5)), 1u);
  EXPECT_EQ(made, 1u);
  EXPECT_EQ(domains.domain_of(1).uids, user(5).uids);
  EXPECT_EQ(domains.domain_of(2).user_namespace, 0u);
}

TEST(Domains, ThereAreSixteenAtMost) {
  std::size_t made = 0;
  Domains domains([&made]() -> Result<std::size_t> { return ++made; });
  for (std::uint32_t id = 0; id < Domains::kMost; ++id) ASSERT_TRUE(domains.part_for(user(id)));
  const auto more = domains.part_for(user(99));
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::limit);
  EXPECT_EQ(domains.count(), Domains::kMost);
  EXPECT_TRUE(domains.part_for(user(3)));
}

TEST(Domains, AUserHasSomeOfThem) {
  std::size_t made = 0;
  Domains domains([&made]() -> Result<std::size_t> { return ++made; });
  const auto with = [](std::uint32_t id, std::uint64_t capabilities) {
    Credentials c = user(id);
    c.permitted = capabilities;
    return c;
  };
  for (std::uint64_t i = 0; i < 2 * Domains::kMostOfUser; ++i)
    EXPECT_EQ(bool(domains.part_for(with(7, i))), i < Domains::kMostOfUser);
  EXPECT_TRUE(domains.part_for(user(8)));
  for (std::uint64_t i = domains.count(); i < Domains::kMost; ++i) EXPECT_TRUE(domains.part_for(with(0, i)));
}

TEST(Domains, APartThatCannotBeMadeIsNotRemembered) {
  bool fails = true;
  Domains domains([&fails]() -> Result<std::size_t> {
    if (fails) return Error{.code = Code::limit, .text = "no memory"};
    return std::size_t{1};
  });
  ASSERT_TRUE(domains.part_for(user(0)));
  EXPECT_FALSE(domains.part_for(user(1)));
  fails = false;
  EXPECT_EQ(*domains.part_for(user(1)), 1u);
}

TEST(Domains, OnlyWhatIsNotWeakerDecides) {
  std::size_t made = 0;
  Domains domains([&made]() -> Result<std::size_t> { return ++made; });
  Credentials able = user(5);
  able.permitted = 4;
  ASSERT_TRUE(domains.part_for(user(5)) && domains.part_for(able) && domains.part_for(user(6)));
  EXPECT_TRUE(domains.may_decide(1, 0));
  EXPECT_FALSE(domains.may_decide(0, 1));
  EXPECT_FALSE(domains.may_decide(0, 2));
  EXPECT_TRUE(domains.may_decide(2, 2));
  EXPECT_FALSE(domains.may_decide(2, 3));
}

// Children that wait for the word to go, some of which then become another user.
class Crowd {
 public:
  explicit Crowd(int count) {
    if (::pipe(gate_) != 0) return;
    for (int i = 0; i < count; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) live();
      if (pid > 0) pids_.push_back(pid);
    }
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;
  ~Crowd() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
    ::close(gate_[0]);
    ::close(gate_[1]);
  }
  const std::vector<pid_t>& pids() const { return pids_; }
  // The first child to read the word changes.
  void change_one() {
    const char word = 'x';
    ASSERT_EQ(::write(gate_[1], &word, 1), 1);
  }

 private:
  [[noreturn]] void live() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    char word = 0;
    while (::read(gate_[0], &word, 1) == 1)
      if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    for (;;) ::pause();
  }
  int gate_[2] = {-1, -1};
  std::vector<pid_t> pids_;
};

class Watching : public testing::Test {
 protected:
  SessionWatch watch_members(const std::set<pid_t>& members) {
    return SessionWatch(
        [this, members](pid_t pid) -> SessionWatch::Found {
          ++looks;
          if (!members.contains(pid)) return {};
          return lent ? SessionWatch::Found{.is_for_now = true} : SessionWatch::Found{.part = 0};
        },
        [own = own_credentials()](std::size_t) { return *own; });
  }
  int looks = 0;
  bool lent = false;
};

TEST_F(Watching, AChildInItsParentsMemoryIsLookedIntoAgain) {
  const Crowd crowd(1);
  lent = true;
  SessionWatch watch = watch_members({crowd.pids().begin(), crowd.pids().end()});
  static_cast<void>(watch.step());
  EXPECT_TRUE(watch.members().empty());
  lent = false;
  static_cast<void>(watch.step());
  EXPECT_EQ(watch.members().size(), 1u);
}

TEST_F(Watching, AProcessIsLookedIntoOnce) {
  const Crowd crowd(3);
  SessionWatch watch = watch_members({crowd.pids().begin(), crowd.pids().end()});
  EXPECT_TRUE(watch.step().empty());
  EXPECT_EQ(watch.members().size(), 3u);
  const int first = looks;
  EXPECT_GE(first, 4);
  const Crowd more(1);
  EXPECT_TRUE(watch.step().empty());
  EXPECT_GT(looks, first);
  EXPECT_EQ(watch.members().size(), 3u);
}

TEST_F(Watching, FindsChangesUntilTheyAreSettled) {
  if (::geteuid() != 0) GTEST_SKIP() << "changes of credentials need root";
  Crowd crowd(3);
  SessionWatch watch = watch_members({crowd.pids().begin(), crowd.pids().end()});
  ASSERT_TRUE(watch.step().empty());
  crowd.change_one();
  std::vector<SessionWatch::Stray> strays;
  for (int tries = 0; tries < 500 && strays.empty(); ++tries) {
    ::usleep(10'000);
    strays = watch.step();
  }
  ASSERT_EQ(strays.size(), 1u);
  EXPECT_EQ(strays[0].credentials.uids[1], 65534u);
  EXPECT_EQ(watch.step().size(), 1u);
}

TEST_F(Watching, ForgetsTheDeadAndFindsTheirSuccessors) {
  auto crowd = std::make_unique<Crowd>(2);
  SessionWatch watch = watch_members({crowd->pids().begin(), crowd->pids().end()});
  static_cast<void>(watch.step());
  ASSERT_EQ(watch.members().size(), 2u);
  crowd.reset();
  const Crowd others(1);
  EXPECT_TRUE(watch.step().empty());
  EXPECT_EQ(watch.members().size(), 0u);
}

// Printed for the reader: a bound would be one on the machine.
TEST_F(Watching, WhatAStepCosts) {
  const Crowd crowd(500);
  const std::set<pid_t> members(crowd.pids().begin(), crowd.pids().begin() + 10);
  SessionWatch watch = watch_members(members);
  const auto used = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto us = [](const timeval& t) { return t.tv_sec * 1'000'000 + t.tv_usec; };
    return us(usage.ru_utime) + us(usage.ru_stime);
  };
  auto begin = used();
  static_cast<void>(watch.step());
  std::printf("first step: %ld us\n", used() - begin);
  begin = used();
  for (int i = 0; i < 100; ++i) static_cast<void>(watch.step());
  std::printf("a step: %ld us\n", (used() - begin) / 100);
  EXPECT_EQ(watch.members().size(), 10u);
}

}  // namespace
}  // namespace uprobe::control
