// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "engine/lex/print_format.h"

namespace uprobe::spec {
namespace {

PrintFormat good(const std::string& text) {
  auto format = read_print_format(text);
  EXPECT_TRUE(format) << text << ": " << format.error().text;
  return format ? format.take() : PrintFormat{};
}

std::string problem(const std::string& text) {
  const auto format = read_print_format(text);
  EXPECT_FALSE(format) << text;
  return format ? "" : format.error().text;
}

TEST(PrintFormat, IsCutAtItsConversions) {
  const PrintFormat format = good("fd=%d 100%% of %-10.3s done\n");
  ASSERT_EQ(format.conversions.size(), 2u);
  EXPECT_EQ(format.conversions[0], (Conversion{.before = "fd=", .letter = 'd'}));
  EXPECT_EQ(format.conversions[1],
            (Conversion{.before = " 100% of ", .letter = 's', .is_left = true, .width = 10, .precision = 3}));
  EXPECT_EQ(format.after, " done");
  EXPECT_TRUE(good("").conversions.empty());
  EXPECT_EQ(good("%%").after, "%");
}

TEST(PrintFormat, Sizes) {
  for (const char* text : {"%lld", "%ld", "%zd", "%jd", "%td", "%qd", "%i"})
    EXPECT_EQ(good(text).conversions.at(0), (Conversion{.letter = 'd'})) << text;
  EXPECT_EQ(good("%hhx").conversions.at(0), (Conversion{.letter = 'x', .bytes = 1}));
  EXPECT_EQ(good("%hu").conversions.at(0), (Conversion{.letter = 'u', .bytes = 2}));
  EXPECT_EQ(good("%ls").conversions.at(0).letter, 'p') << "wide characters are no string";
  EXPECT_EQ(good("%lc").conversions.at(0).letter, 'd');
  EXPECT_EQ(good("%+08.3f").conversions.at(0),
            (Conversion{.letter = 'f', .has_zeros = true, .has_plus = true, .width = 8, .precision = 3}));
  EXPECT_EQ(good("%.s").conversions.at(0).precision, 0u);
}

TEST(PrintFormat, WhatIsNotKnown) {
  EXPECT_EQ(problem("a=%*d"), "the conversion '%*d' is not known");
  EXPECT_EQ(problem("%.*s"), "the conversion '%.*s' is not known");
  EXPECT_EQ(problem("%n"), "the conversion '%n' is not known");
  EXPECT_EQ(problem("%1$d"), "the conversion '%1$d' is not known");
  EXPECT_EQ(problem("%m"), "the conversion '%m' is not known");
  EXPECT_EQ(problem("%'d"), "the conversion '%'d' is not known");
  EXPECT_EQ(problem("%#f"), "the conversion '%#f' is not known");
  EXPECT_EQ(problem("%"), "the conversion '%' does not end");
  EXPECT_EQ(problem("x%-08ll"), "the conversion '%-08ll' does not end");
  EXPECT_EQ(problem("%129d"), "the conversion '%129d' is too wide");
  EXPECT_EQ(problem("%99999999999999999999d").substr(0, 16), "the conversion '");
  EXPECT_EQ(problem("%.129d").substr(0, 16), "the conversion '");
  EXPECT_TRUE(read_print_format("%128.128f"));
  EXPECT_TRUE(read_print_format("%.65535s"));
}

TEST(PrintFormat, NamesBeforeAConversion) {
  for (const char* text : {"fd=", "x fd=", ", fd=", "(fd = ", "fd='", "fd=\"", "fd=0x", "fd: fd=[", "a.fd="})
    EXPECT_EQ(name_before(text), "fd") << text;
  for (const char* text : {"", "fd", "fd: ", "=", " = ", "3d=", "fd=x", "fd=:"})
    EXPECT_EQ(name_before(text), "") << text;
}

}  // namespace
}  // namespace uprobe::spec
