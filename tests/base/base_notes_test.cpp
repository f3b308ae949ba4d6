// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "engine/base/notes.h"

namespace uprobe {
namespace {

TEST(Notes, KeepEachLineOnceInOrder) {
  Notes notes;
  for (const char* line : {"b", "a", "b", "a"}) notes.insert(line);
  EXPECT_EQ(notes.lines(), (std::vector<std::string>{"b", "a"}));
}

TEST(Notes, CountWhatFindsNoRoom) {
  Notes notes;
  for (int i = 0; i < 100'000; ++i) notes.insert("line " + std::to_string(i));
  const auto lines = notes.lines();
  ASSERT_EQ(lines.size(), Notes::kMost + 1);
  EXPECT_EQ(lines[Notes::kMost - 1], "line 99");
  EXPECT_EQ(lines.back(), "99900 further messages are not shown");
}

TEST(Notes, CutLongLines) {
  Notes notes;
  notes.insert(std::string(1 << 20, 'x'));
  EXPECT_EQ(notes.lines()[0].size(), Notes::kMostBytes);
}

TEST(Notes, TakeThoseOfOthersWithTheirCount) {
  Notes some, others;
  some.insert("a");
  for (std::size_t i = 0; i < Notes::kMost + 5; ++i) others.insert("line " + std::to_string(i));
  some.insert(others);
  EXPECT_EQ(some.lines().size(), Notes::kMost + 1);
  EXPECT_EQ(some.lines().back(), "6 further messages are not shown");
}

}  // namespace
}  // namespace uprobe
