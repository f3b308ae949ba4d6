// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/inject/memory_room.h"

namespace uprobe::test {
namespace {

using control::left_in;
using control::memory_group;
using control::MemoryGroup;

// A folder in the place of a mounted hierarchy of cgroups.
class MemoryRoom : public ::testing::Test {
 protected:
  MemoryRoom() {
    std::string name = ::testing::TempDir() + "memory-room-XXXXXX";
    root_ = ::mkdtemp(name.data());
  }
  ~MemoryRoom() override { std::filesystem::remove_all(root_); }

  void set(const std::string& group, const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(root_ + group);
    std::ofstream(root_ + group + "/" + file) << text << "\n";
  }

  std::string root_;
};

TEST_F(MemoryRoom, TheTightestGroupDecides) {
  set("/a/b/c", "memory.max", "max");
  set("/a/b/c", "memory.current", "500");
  set("/a/b", "memory.max", "1000");
  set("/a/b", "memory.current", "900");
  set("/a", "memory.max", "5000");
  set("/a", "memory.current", "1000");
  EXPECT_EQ(left_in({false, "/a/b/c"}, root_), 100U);
  EXPECT_EQ(left_in({false, "/a"}, root_), 4000U);
  EXPECT_EQ(left_in({false, "/"}, root_), std::nullopt);
}

TEST_F(MemoryRoom, AProcessIsSlowedDownAboveItsHighMark) {
  set("/a", "memory.max", "5000");
  set("/a", "memory.high", "2000");
  set("/a", "memory.current", "1500");
  EXPECT_EQ(left_in({false, "/a"}, root_), 500U);
}

TEST_F(MemoryRoom, MoreThanTheLimitLeavesNothing) {
  set("/a", "memory.max", "1000");
  set("/a", "memory.current", "1200");
  EXPECT_EQ(left_in({false, "/a"}, root_), 0U);
}

TEST_F(MemoryRoom, UseThatCannotBeReadLeavesNothing) {
  set("/a", "memory.max", "1000");
  EXPECT_EQ(left_in({false, "/a"}, root_), 0U);
}

TEST_F(MemoryRoom, TheFirstVersionHasOtherNames) {
  set("/a", "memory.limit_in_bytes", "1000");
  set("/a", "memory.usage_in_bytes", "400");
  EXPECT_EQ(left_in({true, "/a"}, root_), 600U);
  EXPECT_EQ(left_in({false, "/a"}, root_), std::nullopt);
}

TEST_F(MemoryRoom, AGroupThatIsNotThereLeavesNothing) { EXPECT_EQ(left_in({false, "/elsewhere"}, root_), 0U); }

TEST_F(MemoryRoom, APathWithoutEndIsGivenUp) {
  std::string path = "/a";
  for (int i = 0; i < 100; ++i) path += "/a";
  set(path, "memory.max", "max");
  EXPECT_EQ(left_in({false, path}, root_), 0U);
}

TEST(MemoryGroups, TheHierarchyWithTheMemoryIsFound) {
  const auto second = memory_group("0::/user.slice/x.scope\n");
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->is_first_version);
  EXPECT_EQ(second->path, "/user.slice/x.scope");
  const auto first = memory_group("9:name=systemd:/s\n4:cpu,memory:/m:1\n0::/u\n");
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->is_first_version);
  EXPECT_EQ(first->path, "/m:1");
}

TEST(MemoryGroups, WhatThisProcessCannotNameIsNotFound) {
  EXPECT_FALSE(memory_group(""));
  EXPECT_FALSE(memory_group("0::/../x\n"));
  EXPECT_FALSE(memory_group("0::\n"));
  EXPECT_FALSE(memory_group("no line of this kind\n4:memory\n"));
  EXPECT_FALSE(memory_group("4:hugetlb,memoryish:/m\n"));
}

TEST(MemoryRoomOf, AProcessWithoutEnoughIsRefused) {
  EXPECT_FALSE(control::has_memory_for(::getpid(), std::uint64_t{1} << 56));
  EXPECT_FALSE(control::has_memory_for(0x7ffffffe, 4096));  // there is no such process
}

}  // namespace
}  // namespace uprobe::test
