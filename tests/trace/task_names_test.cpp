// SPDX-License-Identifier: MIT
// Task names, from a /proc of the test's own and from the real one.
#include "engine/trace/task_names.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/trace/thread_alive.h"

namespace uprobe::trace {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;

class TaskNamesTest : public testing::Test {
 protected:
  TaskNamesTest() {
    char name[] = "/tmp/uprobe-names-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~TaskNamesTest() override { std::filesystem::remove_all(root_); }

  void set_comm(std::uint32_t tid, const std::string& text) {
    const std::string folder = root_ + "/" + std::to_string(tid);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/comm") << text;
  }
  // With /proc's numbers of threads in PID namespaces: from the tool's inwards.
  void add_task(std::uint32_t process, std::uint32_t thread, const std::vector<std::uint32_t>& numbers,
                const std::string& name) {
    set_comm(thread, name);
    const std::string folder = root_ + "/" + std::to_string(process) + "/task/" + std::to_string(thread);
    std::filesystem::create_directories(folder);
    std::ofstream status(folder + "/status");
    status << "Name:\tx\nNSpid:";
    for (const std::uint32_t number : numbers) status << "\t" << number;
    status << "\n";
  }
  static shared::TaskNumber elsewhere(std::uint32_t process, std::uint32_t thread, bool of_child = false) {
    return {process, thread, of_child};
  }
  void end_task(std::uint32_t tid) { std::filesystem::remove_all(root_ + "/" + std::to_string(tid)); }

  std::string root_;
};

TEST_F(TaskNamesTest, ReadsANameAndKeepsItWhenTheTaskIsGone) {
  set_comm(7, "zsh\n");
  TaskNames names(root_);
  names.begin_batch(0);
  names.see(7);
  end_task(7);
  EXPECT_EQ(names.name(7), "zsh");
  names.begin_batch(1000 * kMillisecond);
  EXPECT_EQ(names.name(7), "zsh");
}

TEST_F(TaskNamesTest, AThreadThatWasNeverSeenAlive) {
  TaskNames names(root_);
  EXPECT_EQ(names.name(8), "<...>");
  EXPECT_EQ(names.name(0), "<...>");
  EXPECT_EQ(names.name(0xffffffff), "<...>");
}

TEST_F(TaskNamesTest, RefreshesInALaterBatchAfterAWhile) {
  set_comm(7, "sh\n");
  TaskNames names(root_);
  names.begin_batch(0);
  EXPECT_EQ(names.name(7), "sh");
  set_comm(7, "make\n");
  EXPECT_EQ(names.name(7), "sh");
  names.begin_batch(99 * kMillisecond);
  EXPECT_EQ(names.name(7), "sh");
  names.begin_batch(101 * kMillisecond);
  EXPECT_EQ(names.name(7), "make");
}

TEST_F(TaskNamesTest, ReadsAllOnceMoreAtTheEnd) {
  set_comm(7, "sh\n");
  TaskNames names(root_);
  names.begin_batch(0);
  names.see(7);
  set_comm(7, "late\n");
  names.refresh_all();
  EXPECT_EQ(names.name(7), "late");
}

TEST_F(TaskNamesTest, ALearntNameHoldsUntilTheTaskSaysOtherwise) {
  TaskNames names(root_);
  names.begin_batch(0);
  names.learn(9, "told", 0);
  EXPECT_EQ(names.name(9), "told");
  names.begin_batch(500 * kMillisecond);
  EXPECT_EQ(names.name(9), "told");
  set_comm(9, "real\n");
  names.begin_batch(1000 * kMillisecond);
  EXPECT_EQ(names.name(9), "real");
}

TEST_F(TaskNamesTest, AHitShowsTheNameOfItsTime) {
  TaskNames names("/nonexistent");
  names.learn(9, "executed", 30);
  names.learn(9, "forked", 10);
  names.learn(9, "again", 50);
  EXPECT_EQ(names.name(9, 5), "forked");  // nothing is known of earlier times
  EXPECT_EQ(names.name(9, 10), "forked");
  EXPECT_EQ(names.name(9, 29), "forked");
  EXPECT_EQ(names.name(9, 30), "executed");
  EXPECT_EQ(names.name(9, 60), "again");
  EXPECT_EQ(names.name(9), "again");
}

// From /proc too: a reading says nothing about earlier times of which more is known.
TEST_F(TaskNamesTest, WhatIsReadHoldsFromThenOn) {
  set_comm(7, "now\n");
  TaskNames names(root_);
  const std::uint64_t before = TaskNames::now_ns();
  names.learn(7, "then", before - 5);
  names.see(7);
  EXPECT_EQ(names.name(7, before), "then");
  EXPECT_EQ(names.name(7, TaskNames::now_ns()), "now");
}

TEST_F(TaskNamesTest, ANameThatIsBeingWrittenIsReadLater) {
  set_comm(7, "old\n");
  TaskNames names(root_);
  const std::uint64_t opened = TaskNames::now_ns();
  names.begin_batch(opened);
  names.learn(7, "old", opened - 2);
  names.learn(8, "old", opened - 2);
  names.forget(7, opened);
  names.forget(8, opened);
  EXPECT_EQ(names.name(7, opened - 1), "old");
  EXPECT_EQ(names.name(7, opened + 1), "<...>");
  EXPECT_EQ(names.name(8, opened + 1), "<...>");
  set_comm(7, "new\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(25));
  names.begin_batch(TaskNames::now_ns());
  EXPECT_EQ(names.name(7, opened + 2), "new");
  EXPECT_EQ(names.name(8, opened + 2), "<...>");
}

TEST_F(TaskNamesTest, NothingIsReadOfStrangers) {
  set_comm(7, "traced\n");
  set_comm(8, "stranger\n");
  TaskNames names(root_, [](std::uint32_t tid, bool is_elsewhere) { return tid == 7 && !is_elsewhere; });
  EXPECT_EQ(names.name(7), "traced");
  EXPECT_EQ(names.name(8), "<...>");
  names.learn(8, "told", 1);
  names.refresh_all();
  EXPECT_EQ(names.name(8), "told");
}

// Tasks of two namespaces have the same numbers, and so has one of the tool's.
TEST_F(TaskNamesTest, NumbersOfOtherNamespacesAreNobodyElses) {
  set_comm(7, "here\n");
  add_task(100, 100, {100, 7}, "first\n");
  add_task(200, 200, {200, 7}, "second\n");
  TaskNames names(root_);
  EXPECT_EQ(names.name(7), "here");
  EXPECT_EQ(names.name(elsewhere(100, 7)), "first");
  EXPECT_EQ(names.name(elsewhere(200, 7)), "second");
  EXPECT_EQ(names.number(7), 7u);
  EXPECT_EQ(names.number(elsewhere(100, 7)), 100u);
  EXPECT_EQ(names.name(names.called(200)), "second");
  EXPECT_EQ(names.name(names.called(7)), "here");
}

TEST_F(TaskNamesTest, AThreadIsKnownAsLongAsItIsRemembered) {
  add_task(100, 100, {100, 7}, "first\n");
  add_task(100, 105, {105, 9}, "other\n");
  TaskNames names(root_);
  EXPECT_EQ(names.number(elsewhere(100, 9)), 105u);
  EXPECT_EQ(names.name(elsewhere(100, 9)), "other");
  end_task(105), std::filesystem::remove_all(root_ + "/100/task/105");
  names.begin_batch(names.now_ns());
  names.refresh_all();
  EXPECT_EQ(names.number(elsewhere(100, 9)), 105u);
  names.begin(elsewhere(100, 9));
  EXPECT_EQ(names.number(elsewhere(100, 9)), 100u) << "the process's, if the thread was never seen";
}

TEST_F(TaskNamesTest, ChildrenThatHaveNotBeenToldTheirNumber) {
  add_task(100, 100, {100, 7}, "parent\n");
  add_task(110, 110, {110, 8}, "child\n");
  add_task(120, 120, {120, 1, 8}, "further in\n");
  add_task(130, 130, {130, 12}, "grandchild\n");
  std::ofstream(root_ + "/100/task/100/children") << "120 110 ";
  std::ofstream(root_ + "/110/task/110/children") << "130 ";
  TaskNames names(root_, [](std::uint32_t tid, bool is_elsewhere) { return is_elsewhere && tid != 130; });
  EXPECT_EQ(names.number(elsewhere(100, 8, true)), 110u);
  EXPECT_EQ(names.name(elsewhere(100, 8, true)), "child");
  EXPECT_EQ(names.number(elsewhere(100, 12, true)), 0u) << "it is not traced";
  EXPECT_EQ(names.name(elsewhere(100, 12, true)), "<...>");
  names.learn_number(elsewhere(100, 13, true), 131);
  EXPECT_EQ(names.number(elsewhere(100, 13, true)), 131u);
}

TEST(TaskNumbers, AreWhatARecordSays) {
  for (const std::uint32_t process : {0u, 1u, 65536u, 4194303u})
    for (const bool of_child : {false, true})
      for (const std::uint32_t thread : {1u, 4194303u}) {
        const shared::TaskNumber task{process, thread, of_child};
        const shared::TaskWords words = shared::words_of(process, of_child);
        EXPECT_EQ(words.process & 0xffff, 0u);
        EXPECT_EQ(shared::task_of(words.process | 0x1234, words.thread | thread), task);
        EXPECT_EQ(shared::task_of_key(task.key()), task);
      }
  EXPECT_EQ(shared::owner_of({}, 77), 77u);
  EXPECT_EQ(shared::owner_of(shared::words_of(99, false), 77), shared::kOwnerElsewhere | 99);
}

TEST_F(TaskNamesTest, OneTaskWithManyNamesDoesNotGrowWithoutEnd) {
  TaskNames names("/nonexistent");
  for (std::uint64_t i = 0; i < 100'000; ++i) names.learn(9, "n" + std::to_string(i), i);
  EXPECT_EQ(names.name(9), "n99999");
  EXPECT_EQ(names.name(9, 0), "n99999");
}

TEST_F(TaskNamesTest, TakesNamesAsTheyAre) {
  set_comm(1, "\n");
  set_comm(2, "two\nlines\n");
  set_comm(3, "0123456789abcdefghij\n");
  set_comm(4, "");
  TaskNames names(root_);
  EXPECT_EQ(names.name(1), "");
  EXPECT_EQ(names.name(2), "two\nlines");
  EXPECT_EQ(names.name(3), "0123456789abcde");
  EXPECT_EQ(names.name(4), "<...>");
}

TEST_F(TaskNamesTest, ForgetsRatherThanGrowsWithoutEnd) {
  TaskNames names("/nonexistent");
  names.learn(1, "one", 0);
  EXPECT_EQ(names.name(1), "one");
  for (std::uint32_t tid = 2; tid < 70'000; ++tid) names.see(tid);
  EXPECT_EQ(names.name(1), "<...>");
  names.learn(1, "again", 0);
  EXPECT_EQ(names.name(1), "again");
}

TEST(TaskNames, TasksWithTheSameCacheSlotAreKeptApart) {
  TaskNames names("/nonexistent");
  for (std::uint32_t i = 0; i < 5; ++i) names.learn(i * 64, std::string(1, static_cast<char>('a' + i)), 0);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(names.name(i * 64), std::string(1, static_cast<char>('a' + i)));
}

TEST(TaskNames, TheRealProcKnowsAZombie) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, "short-lived");
    ::_exit(0);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  TaskNames names;
  EXPECT_EQ(names.name(static_cast<std::uint32_t>(child)), "short-lived");
  EXPECT_FALSE(thread_is_alive(static_cast<std::uint32_t>(child)));
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(thread_is_alive(static_cast<std::uint32_t>(child)));
}

TEST(ThreadIsAlive, KnowsTheLivingAndTheImpossible) {
  EXPECT_TRUE(thread_is_alive(static_cast<std::uint32_t>(::gettid())));
  EXPECT_TRUE(thread_is_alive(1));
  EXPECT_FALSE(thread_is_alive(0));
  EXPECT_FALSE(thread_is_alive(0xffffffff));
  EXPECT_FALSE(thread_is_alive(0x7ffffffe));
}

}  // namespace
}  // namespace uprobe::trace
