// SPDX-License-Identifier: MIT
// The blocks of programs that execve has replaced are forgotten, those of others never.
#include <gtest/gtest.h>

#include "engine/service/known_blocks.h"

namespace uprobe::test {
namespace {

using control::KnownBlocks;

TEST(KnownBlocks, OneProcessThatCallsExecveForEver) {
  Addr latest{1};
  int looks = 0;
  KnownBlocks blocks([&] { return ++looks, std::set<Addr>{Addr{1}, latest}; });
  blocks.add(Addr{1});
  for (std::uint64_t i = 2; i < 100'000; ++i) {
    latest = Addr{i};
    blocks.add(latest);
    ASSERT_TRUE(blocks.contains(latest));
  }
  EXPECT_TRUE(blocks.contains(Addr{1}));
  EXPECT_LE(blocks.all().size(), KnownBlocks::kFew);
  EXPECT_LT(looks, 500);
}

TEST(KnownBlocks, AllThatAreInUseStay) {
  std::set<Addr> used;
  int looks = 0;
  KnownBlocks blocks([&] { return ++looks, used; });
  for (std::uint64_t i = 0; i < 10'000; ++i) used.insert(Addr{i}), blocks.add(Addr{i});
  EXPECT_EQ(blocks.all(), used);
  EXPECT_LT(looks, 10) << "each time the number doubles";
  used = {Addr{5}};
  for (std::uint64_t i = 10'000; i < 20'000; ++i) blocks.add(Addr{i});
  EXPECT_LE(blocks.all().size(), 2 * KnownBlocks::kFew + 10'000) << "until the next look";
  for (std::uint64_t i = 20'000; i < 40'000; ++i) blocks.add(Addr{i});
  EXPECT_LE(blocks.all().size(), KnownBlocks::kFew);
  EXPECT_TRUE(blocks.contains(Addr{5}));
}

// A block that is being added is in use, though it has no process yet.
TEST(KnownBlocks, TheLatestIsNeverForgotten) {
  KnownBlocks blocks([] { return std::set<Addr>{}; });
  for (std::uint64_t i = 0; i < 1'000; ++i) {
    blocks.add(Addr{i});
    ASSERT_TRUE(blocks.contains(Addr{i}));
  }
}

}  // namespace
}  // namespace uprobe::test
