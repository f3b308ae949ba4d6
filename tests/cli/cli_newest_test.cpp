// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "cli/newest.h"

namespace uprobe::cli {
namespace {

TEST(NewestLines, HoldAllThatFits) {
  NewestLines lines(100, false);
  lines.add("# head\n#\na 1\n");
  lines.add("a 2\na 3\n");
  EXPECT_EQ(lines.take(), "# head\n#\na 1\na 2\na 3\n");
}

TEST(NewestLines, DropTheOldestAsWholeLines) {
  NewestLines lines(10, false);
  lines.add("# head\naa 1\naa 2\n");
  lines.add("aa 3\n");
  EXPECT_EQ(lines.take(), "# head\naa 2\naa 3\n");
}

TEST(NewestLines, OneLineMayBeTooLong) {
  NewestLines lines(4, false);
  lines.add("1234567\n");
  EXPECT_EQ(lines.take(), "");
  lines.add("a\n");
  EXPECT_EQ(lines.take(), "a\n");
}

TEST(NewestLines, AreTakenOnceAndTheFirstLinesOnlyAtFirst) {
  NewestLines lines(100, false);
  lines.add("# head\na 1\n");
  EXPECT_EQ(lines.take(), "# head\na 1\n");
  EXPECT_EQ(lines.take(), "");
  lines.add("# not a head\na 2\n");
  EXPECT_EQ(lines.take(), "# not a head\na 2\n");
}

TEST(NewestLines, NamesOfColumnsStay) {
  NewestLines lines(8, true);
  lines.add("time,cpu\n1,0\n2,0\n");
  lines.add("3,0\n4,0\n");
  EXPECT_EQ(lines.take(), "time,cpu\n3,0\n4,0\n");
}

TEST(NewestLines, AreExactOverManyParts) {
  NewestLines lines(200'000, false);
  std::string all;
  for (int i = 0; i < 100'000; ++i) {
    const std::string line = std::to_string(i) + "\n";
    all += line;
    lines.add(line);
  }
  const std::string kept = lines.take();
  EXPECT_LE(kept.size(), 200'000U);
  EXPECT_GT(kept.size(), 199'990U);
  EXPECT_EQ(kept, all.substr(all.size() - kept.size()));
  EXPECT_EQ(all[all.size() - kept.size() - 1], '\n');
}

}  // namespace
}  // namespace uprobe::cli
