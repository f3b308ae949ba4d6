// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "engine/pairs/pair_table.h"

namespace uprobe::format {
namespace {

constexpr std::uint32_t kMalloc = 1, kFree = 2, kRealloc = 3, kMemalign = 4, kExec = 5, kCalloc = 6;

class Story {
 public:
  explicit Story(bool has_times = false) : table_(has_times) {}

  Story& step(PairRole role, std::uint32_t function, std::uint64_t key = 0, std::uint64_t size = 0,
              bool has_failed = false) {
    table_.take({.role = role,
                 .function = function,
                 .pid = pid,
                 .tid = tid,
                 .ns = now += 10,
                 .key = key,
                 .size = size,
                 .has_failed = has_failed},
                command, [](std::uint32_t program) { return program; });
    return *this;
  }
  Story& opens(std::uint32_t function, std::uint64_t key, std::uint64_t size) {
    return step(PairRole::opening, function, key, size);
  }
  Story& fails(std::uint32_t function, std::uint64_t size) { return step(PairRole::opening, function, 0, size, true); }
  Story& closes(std::uint64_t key) { return step(PairRole::closing, kFree, key); }
  Story& begins(std::uint32_t function) { return step(PairRole::beginning, function); }
  Story& moves(std::uint64_t key) { return step(PairRole::moving, kRealloc, key); }
  const PairTable::Process& of(std::uint32_t process) const { return table_.processes().at(process); }
  const PairTable::Process& one() const { return of(pid); }
  std::uint64_t size_of(std::uint64_t key) const { return one().held.contains(key) ? one().held.at(key).size : 0; }
  PairTable& table() { return table_; }

  std::uint32_t pid = 7, tid = 7;
  std::uint64_t now = 0;
  std::string command = "prog";

 private:
  PairTable table_;
};

TEST(PairTable, HoldsWhatIsNotClosed) {
  Story story;
  story.opens(kMalloc, 0x10, 5).opens(kMalloc, 0x20, 6).closes(0x10).closes(0);
  EXPECT_EQ(story.one().opened, 2u);
  EXPECT_EQ(story.one().closed, 1u);
  EXPECT_EQ(story.one().held.size(), 1u);
  EXPECT_EQ(story.size_of(0x20), 6u);
}

// C++'s delete calls free, with its key or another one that it keeps for itself.
TEST(PairTable, WhatAClosingCallsIsPartOfIt) {
  constexpr std::uint32_t kSizedDelete = 8, kDelete = 9;
  Story story;
  story.opens(kMalloc, 0x10, 5).step(PairRole::closing, kSizedDelete, 0x10).step(PairRole::closing, kDelete, 0x10);
  story.closes(0x8);
  EXPECT_EQ(story.one().closed, 1u);
  EXPECT_EQ(story.one().unknown, 0u);
  story.opens(kMalloc, 0x20, 5).closes(0x20).closes(0x30);
  EXPECT_EQ(story.one().unknown, 1u);
}

TEST(PairTable, AFunctionThatThrowsIsOver) {
  constexpr std::uint32_t kNew = 8, kThrows = 9;
  Story story;
  story.begins(kNew).step(PairRole::throwing, kThrows).opens(kMalloc, 0x10, 5).closes(0x10);
  story.begins(kNew).opens(kMalloc, 0x20, 64).opens(kNew, 0x28, 50);
  EXPECT_EQ(story.one().opened, 2u);
  EXPECT_EQ(story.one().unknown, 0u);
  EXPECT_EQ(story.size_of(0x28), 50u);
  EXPECT_EQ(story.size_of(0x20), 0u);
}

TEST(PairTable, AHeldKeyIsClosedWithinACallToo) {
  constexpr std::uint32_t kNew = 8;
  Story story;
  story.opens(kMalloc, 0x10, 5).begins(kNew).closes(0x10).closes(0x50).opens(kNew, 0x20, 7);
  EXPECT_EQ(story.one().held.size(), 1u);
  EXPECT_EQ(story.one().unknown, 0u);
}

TEST(PairTable, ThreadsOfAProcessShareItsKeys) {
  Story story;
  story.opens(kMalloc, 0x10, 5);
  story.tid = 8;
  story.closes(0x10);
  EXPECT_TRUE(story.one().held.empty());
  EXPECT_EQ(story.one().unknown, 0u);
}

TEST(PairTable, AProcessThatIsNotKnownIsThatOfItsThread) {
  Story story;
  story.opens(kMalloc, 0x10, 5);
  story.pid = 0;
  story.closes(0x10);
  EXPECT_TRUE(story.of(7).held.empty());
}

TEST(PairTable, ARealloc) {
  Story story;
  story.opens(kMalloc, 0x10, 5).moves(0x10);
  EXPECT_TRUE(story.one().held.empty());  // another thread may be given it now
  story.opens(kRealloc, 0x20, 50);
  EXPECT_EQ(story.size_of(0x20), 50u);
  story.moves(0x20).opens(kRealloc, 0x20, 60);
  EXPECT_EQ(story.size_of(0x20), 60u);
  EXPECT_EQ(story.one().opened, 3u);
  EXPECT_EQ(story.one().closed, 2u);
}

TEST(PairTable, AReallocThatFails) {
  Story story;
  story.opens(kMalloc, 0x10, 5).moves(0x10).fails(kRealloc, 1000);
  EXPECT_EQ(story.size_of(0x10), 5u);
  EXPECT_EQ(story.one().closed, 0u);
}

TEST(PairTable, AReallocToNothingFrees) {
  Story story;
  story.opens(kMalloc, 0x10, 5).moves(0x10).fails(kRealloc, 0);
  EXPECT_TRUE(story.one().held.empty());
  EXPECT_EQ(story.one().closed, 1u);
}

TEST(PairTable, AReallocUnderWayAtTheEnd) {
  Story story;
  story.opens(kMalloc, 0x10, 5).moves(0x10);
  story.table().finish();
  EXPECT_EQ(story.size_of(0x10), 5u);
}

TEST(PairTable, InnerCallsOfTheFamilyAreLeftOut) {
  Story story;
  story.moves(0).opens(kMalloc, 0x10, 5).opens(kRealloc, 0x10, 5);
  story.begins(kMemalign).opens(kMalloc, 0x100, 100).opens(kMemalign, 0x140, 40);
  story.moves(0x10).opens(kMalloc, 0x20, 70).closes(0x10).opens(kRealloc, 0x20, 70);
  EXPECT_EQ(story.one().opened, 3u);
  EXPECT_EQ(story.one().closed, 1u);
  EXPECT_EQ(story.one().unknown, 0u);
  EXPECT_EQ(story.one().held.size(), 2u);
  EXPECT_EQ(story.size_of(0x140), 40u);
}

TEST(PairTable, AnInnerCallThatGivesOutTheSameKey) {
  Story story;
  story.opens(kMalloc, 0x10, 12).opens(kCalloc, 0x10, 10);
  EXPECT_EQ(story.one().opened, 1u);
  EXPECT_EQ(story.one().missed, 0u);
  EXPECT_EQ(story.size_of(0x10), 10u);
}

TEST(PairTable, AKeyThatIsOpenedAgain) {
  Story story;
  story.opens(kMalloc, 0x10, 5).opens(kMalloc, 0x20, 5).opens(kMalloc, 0x10, 7);
  EXPECT_EQ(story.one().missed, 1u);
  EXPECT_EQ(story.size_of(0x10), 7u);
}

TEST(PairTable, AKeyThatIsOpenedAgainAtOnce) {
  Story story;
  story.opens(kMalloc, 0x10, 5).opens(kMalloc, 0x10, 5).closes(0x10);
  EXPECT_EQ(story.one().missed, 1u) << "a recursive lock";
  EXPECT_EQ(story.one().opened, 2u);
  EXPECT_EQ(story.one().closed, 1u);
}

TEST(PairTable, AnOuterCallWhoseReturnIsMissingHidesLittle) {
  Story story;
  story.begins(kMemalign);
  for (std::uint64_t key = 1; key <= 100; ++key) story.opens(kMalloc, key * 16, 1);
  EXPECT_EQ(story.one().opened, 92u);
  story.opens(kMalloc, 0x10000, 5).moves(0x10000);
  for (std::uint64_t key = 1; key <= 9; ++key) story.closes(key * 16);
  EXPECT_EQ(story.size_of(0x10000), 5u);
}

TEST(PairTable, AChildHasATableOfItsOwn) {
  Story story;
  story.opens(kMalloc, 0x10, 5);
  story.pid = story.tid = 8;
  story.closes(0x10).opens(kMalloc, 0x30, 3);
  EXPECT_EQ(story.of(7).held.size(), 1u);
  EXPECT_EQ(story.of(8).held.size(), 1u);
  EXPECT_EQ(story.of(8).unknown, 1u);
}

TEST(PairTable, ExecveGivesUpAll) {
  Story story;
  story.opens(kMalloc, 0x10, 5).step(PairRole::exec, kExec).step(PairRole::exec_back, kExec).opens(kMalloc, 0x20, 5);
  EXPECT_EQ(story.one().held.size(), 2u);
  story.step(PairRole::exec, kExec);
  story.command = "next";
  story.opens(kMalloc, 0x10, 9);
  EXPECT_EQ(story.one().held.size(), 1u);
  EXPECT_EQ(story.one().held.at(0x10).stack, 1u);  // of the second program
  EXPECT_EQ(story.one().command, "next");
}

TEST(PairTable, ExecveOfAnotherThread) {
  Story story;
  story.opens(kMalloc, 0x10, 5);
  story.tid = 9;
  story.step(PairRole::exec, kExec);
  story.tid = 7;
  story.opens(kMalloc, 0x20, 5);
  EXPECT_EQ(story.one().held.size(), 2u);
  story.command = "next";
  story.opens(kMalloc, 0x30, 5);
  EXPECT_EQ(story.one().held.size(), 1u);
}

TEST(PairTable, AThreadNumberOfAnotherProcessIsAnotherThread) {
  Story story;
  story.begins(kMemalign);
  story.pid = 8;
  story.opens(kMalloc, 0x10, 5);
  EXPECT_EQ(story.one().opened, 1u);
}

TEST(PairTable, TimesByKey) {
  Story story(true);
  story.opens(1, 3, 0).closes(3).opens(1, 3, 0).opens(1, 0, 0).closes(3).closes(0);
  const KeyTimes& times = story.one().times.at(3);
  EXPECT_EQ(times.count, 2u);
  EXPECT_EQ(times.total_ns, 30u);
  EXPECT_EQ(times.longest_ns, 20u);
  EXPECT_EQ(story.one().times.at(0).count, 1u);
}

TEST(PairTable, HasBounds) {
  Story story;
  for (std::uint64_t key = 1; key <= PairTable::kMostHeld + 3; ++key) story.opens(kMalloc, key, 1);
  EXPECT_EQ(story.one().held.size(), PairTable::kMostHeld);
  EXPECT_EQ(story.one().dropped, 3u);
  story.closes(1).opens(kMalloc, 1, 1);
  EXPECT_EQ(story.one().dropped, 3u);
}

TEST(PairTable, HasBoundsOnProcessesAndThreads) {
  Story story;
  for (std::uint32_t pid = 1; pid <= PairTable::kMostProcesses + 10; ++pid) {
    story.pid = story.tid = pid;
    story.opens(kMalloc, 16, 1);
  }
  EXPECT_EQ(story.table().processes().size(), PairTable::kMostProcesses);
}

}  // namespace
}  // namespace uprobe::format
