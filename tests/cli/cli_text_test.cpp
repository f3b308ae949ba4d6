// SPDX-License-Identifier: MIT
// Escaping, grouping and near misses.
#include <gtest/gtest.h>

#include "cli/text.h"

namespace uprobe::cli {
namespace {

using namespace std::string_literals;

TEST(CliText, ControlBytesNeverPass) {
  EXPECT_EQ(escape("plain \\ text"), "plain \\ text");
  EXPECT_EQ(escape("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(escape("\x1b[2J\x7f\0x"s + "\0"s), "\\x1b[2J\\x7f\\x00x\\x00");
}

TEST(CliText, Utf8PassesAndBrokenUtf8DoesNot) {
  EXPECT_EQ(escape("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"), "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80");
  EXPECT_EQ(escape("\xc3"), "\\xc3");
  EXPECT_EQ(escape("\xc3("), "\\xc3(");
  EXPECT_EQ(escape("\xc0\x9b"), "\\xc0\\x9b") << "overlong ESC";
  EXPECT_EQ(escape("\xe0\x80\x9b"), "\\xe0\\x80\\x9b") << "overlong ESC";
  EXPECT_EQ(escape("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(escape("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "after the last character";
  EXPECT_EQ(escape("\xff\xfe"), "\\xff\\xfe");
}

TEST(CliText, CharactersThatReorderALineAreEscaped) {
  EXPECT_EQ(escape("\xe2\x80\xae"), "\\xe2\\x80\\xae") << "right-to-left override";
  EXPECT_EQ(escape("\xc2\x9b"), "\\xc2\\x9b") << "C1 control sequence introducer";
  EXPECT_EQ(escape("\xe2\x80\xa8"), "\\xe2\\x80\\xa8") << "line separator";
}

TEST(CliText, GlyphsRememberTheirByte) {
  const auto line = glyphs("\xc3\xbc\x01z");
  ASSERT_EQ(line.size(), 3u);
  EXPECT_EQ(line[1].byte, 2u);
  EXPECT_EQ(line[1].width, 4u);
  EXPECT_EQ(line[2].byte, 3u);
}

TEST(CliText, NumbersAreGrouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(123456), "123,456");
  EXPECT_EQ(grouped(~0ull), "18,446,744,073,709,551,615");
  EXPECT_EQ(counted(1, "hit", "hits"), "1 hit");
  EXPECT_EQ(counted(0, "hit", "hits"), "0 hits");
}

TEST(CliText, TheNearestIsNearEnough) {
  const std::vector<std::string> names = {"exec", "output", "probe", "probes-from"};
  EXPECT_EQ(nearest("exce", names), "exec");
  EXPECT_EQ(nearest("outptu", names), "output");
  EXPECT_EQ(nearest("probs-from", names), "probes-from");
  EXPECT_EQ(nearest("record", names), "");
  EXPECT_EQ(nearest("", names), "");
  EXPECT_EQ(nearest(std::string(1000, 'a'), names), "");
}

}  // namespace
}  // namespace uprobe::cli
