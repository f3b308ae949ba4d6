// SPDX-License-Identifier: MIT
// From an address to its point: the hash as the tool fills it, with collisions, at its end, and full. And the id of the hitting
// thread, without a system call.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <thread>

#include "tests/agent/agent_in_test.h"

namespace uprobe::test {
namespace {

using shared::Point;

// A block with a hash of 16 entries.
struct SmallBlock {
  shared::ProcessBlock head{};
  Point points[16]{};
  u32 hash[16]{};

  SmallBlock() {
    head.hash_bits = 4;
    head.point_offset = offsetof(SmallBlock, points);
    head.hash_offset = offsetof(SmallBlock, hash);
    head.point_capacity = 16;
  }
  void add(u64 address) {
    points[head.point_count].address = address;
    u32 slot = shared::hash_slot(address, 4);
    while (hash[slot] != 0) slot = (slot + 1) & 15;
    hash[slot] = ++head.point_count;
  }
  const Point* find(u64 address) const { return agent::find_point(head, address); }
};

u64 address_in_slot(u32 slot, u32 which) {
  for (u64 address = 0x400000;; ++address)
    if (shared::hash_slot(address, 4) == slot && which-- == 0) return address;
}

TEST(Points, AnEmptyHashHasNothing) {
  const SmallBlock block;
  EXPECT_EQ(block.find(0), nullptr);
  EXPECT_EQ(block.find(0x400000), nullptr);
}

TEST(Points, CollisionsAreTold) {
  SmallBlock block;
  for (u32 i = 0; i < 5; ++i) block.add(address_in_slot(15, i));  // runs over the end of the table
  for (u32 i = 0; i < 5; ++i) {
    ASSERT_NE(block.find(address_in_slot(15, i)), nullptr);
    EXPECT_EQ(block.find(address_in_slot(15, i)), &block.points[i]);
  }
  EXPECT_EQ(block.find(address_in_slot(15, 5)), nullptr);
  EXPECT_EQ(block.find(address_in_slot(2, 0)), nullptr) << "a slot taken by another address's run";
}

TEST(Points, AFullTableEndsTheSearch) {
  SmallBlock block;
  for (u32 i = 0; i < 16; ++i) block.add(address_in_slot(i % 16, 0));
  for (u32 i = 0; i < 16; ++i) EXPECT_EQ(block.find(address_in_slot(i, 0)), &block.points[i]);
  EXPECT_EQ(block.find(address_in_slot(3, 1)), nullptr);
}

TEST(Threads, IdAndPointerAreTheOnesOfTheThread) {
  install_agent_handlers();
  shared::ProcessBlock& block = empty_block();
  EXPECT_EQ(agent::thread_id(block, true), static_cast<u32>(::gettid()));
  EXPECT_NE(block.tid_offset, 0) << "the layout of the C library's control block is known";
  const u64 here = agent::thread_pointer();
  std::thread([&] {
    EXPECT_EQ(agent::thread_id(block, true), static_cast<u32>(::gettid()));
    EXPECT_NE(agent::thread_pointer(), here);
  }).join();
}

TEST(Threads, AForkedChildHasItsOwnId) {
  install_agent_handlers();
  shared::ProcessBlock& block = empty_block();
  ASSERT_EQ(agent::thread_id(block, true), static_cast<u32>(::gettid()));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(agent::thread_id(block, true) == static_cast<u32>(::gettid()) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Threads, WhereNothingMayBeReadTheProcessStandsIn) {
  shared::ProcessBlock& block = empty_block();
  EXPECT_EQ(agent::thread_id(block, false), block.pid);
}

}  // namespace
}  // namespace uprobe::test
