// SPDX-License-Identifier: MIT
// SparseSet against std::set.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "engine/flow/sparse_set.h"

namespace uprobe::plan::test {
namespace {

bool has_in(const std::set<std::uint64_t>& numbers, std::uint64_t begin, std::uint64_t end) {
  const auto first = numbers.lower_bound(begin);
  return first != numbers.end() && *first < end;
}

TEST(SparseSet, HoldsWhatASetHolds) {
  std::mt19937_64 random(7);
  for (const std::uint64_t spread : {300U, 5'000U, 4'000'000U}) {
    SparseSet sparse;
    std::set<std::uint64_t> numbers;
    for (unsigned n = 0; n < 4000; ++n) {
      const std::uint64_t number = 0x400000 + random() % spread;
      EXPECT_EQ(sparse.add(number), numbers.insert(number).second);
      EXPECT_EQ(sparse.size(), numbers.size());
      const std::uint64_t begin = 0x400000 + random() % spread, end = begin + random() % 200;
      EXPECT_EQ(sparse.has_in(begin, end), has_in(numbers, begin, end)) << begin << ' ' << end;
    }
  }
}

TEST(SparseSet, HoldsTheEnds) {
  SparseSet sparse;
  EXPECT_FALSE(sparse.has_in(0, 64));
  EXPECT_TRUE(sparse.add(0));
  EXPECT_TRUE(sparse.add(~std::uint64_t{0}));
  EXPECT_FALSE(sparse.add(0));
  EXPECT_TRUE(sparse.has_in(0, 1));
  EXPECT_FALSE(sparse.has_in(1, 64));
  EXPECT_FALSE(sparse.has_in(0, 0));
  EXPECT_TRUE(sparse.add(~std::uint64_t{0} - 100));
  EXPECT_TRUE(sparse.has_in(~std::uint64_t{0} - 100, ~std::uint64_t{0}));
  EXPECT_FALSE(sparse.has_in(~std::uint64_t{0} - 99, ~std::uint64_t{0}));
}

}  // namespace
}  // namespace uprobe::plan::test
