// SPDX-License-Identifier: MIT
// The table of -c as text and as JSON.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/calls.h"
#include "cli/top.h"

namespace uprobe::cli {
namespace {

CallSummary row(const char* event, std::uint64_t calls, std::uint64_t total) {
  CallSummary made{.event = event, .place = "/bin/x:0x10", .calls = calls, .returns = calls, .total_ns = total};
  made.self_ns = total / 2;
  made.mean_ns = calls == 0 ? 0 : total / calls;
  made.p50_ns = made.p90_ns = made.p99_ns = made.max_ns = made.mean_ns;
  return made;
}

TEST(Calls, TheLongestTotalComesFirstAndColumnsAreAligned) {
  EXPECT_EQ(render_calls({row("brief", 1, 999), row("long", 1234, 12'345'678), row("never", 0, 0)}),
            "calls  returns    total     self     mean      p50      p90      p99      max  function\n"
            "1,234    1,234  12.3 ms  6.17 ms  10.0 us  10.0 us  10.0 us  10.0 us  10.0 us  long\n"
            "    1        1   999 ns   499 ns   999 ns   999 ns   999 ns   999 ns   999 ns  brief\n"
            "1 function never called\n");
}

TEST(Calls, WhatIsNotKnownIsSaid) {
  CallSummary left = row("left", 3, 0);
  left.returns = 0, left.abandoned = 2, left.unfollowed = 1;
  CallSummary odd = row("odd", 2, 5000);
  odd.self_ns.reset(), odd.untimed = 1;
  const std::string text = render_calls({left, odd});
  EXPECT_NE(text.find("5.00 us     ?"), std::string::npos) << text;
  EXPECT_NE(text.find("    3        0        -     -"), std::string::npos) << text;
  EXPECT_NE(text.find("\n2 calls did not return: "), std::string::npos);
  EXPECT_NE(text.find("\n1 call could not be followed to the return\n"), std::string::npos);
  EXPECT_NE(text.find("\n1 return without a known time: counted, and in no other column\n"), std::string::npos);
}

TEST(Calls, NamesAreEscaped) {
  EXPECT_NE(render_calls({row("a\x1b[2J\nb", 1, 1)}).find("  a\\x1b[2J\\nb\n"), std::string::npos);
  EXPECT_NE(render_calls_json({row("a\"\n", 1, 1)}).find(R"({"event":"a\"\u000a",)"), std::string::npos);
}

TEST(Calls, JsonIsAnArray) {
  EXPECT_EQ(render_calls_json({}), "[]\n");
  CallSummary odd = row("f", 2, 5000);
  odd.self_ns.reset();
  EXPECT_EQ(render_calls_json({odd}),
            "[\n "
            "{\"event\":\"f\",\"place\":\"/bin/"
            "x:0x10\",\"calls\":2,\"returns\":2,\"abandoned\":0,\"unfollowed\":0,\"untimed\":0,"
            "\"total_ns\":5000,\"self_ns\":null,\"mean_ns\":2500,\"p50_ns\":2500,\"p90_ns\":2500,\"p99_ns\":2500,\"max_"
            "ns\":2500}\n]\n");
}

TEST(Calls, ARowSaysItsProcess) {
  CallSummary own = row("f", 2, 5000), others = row("f", 1, 100);
  own.process = {12, "a\nb"}, others.process = {0, ""};
  EXPECT_EQ(render_calls({own, others, row("never", 0, 0)}),
            "calls  returns    total     self     mean      p50      p90      p99      max  process   function\n"
            "    2        2  5.00 us  2.50 us  2.50 us  2.50 us  2.50 us  2.50 us  2.50 us  a\\nb-12   f\n"
            "    1        1   100 ns    50 ns   100 ns   100 ns   100 ns   100 ns   100 ns  (others)  f\n"
            "1 function never called\n");
  const std::string json = render_calls_json({own, others});
  EXPECT_NE(json.find(R"("place":"/bin/x:0x10","pid":12,"process":"a\u000ab","calls":2,)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("pid":null,"process":null,"calls":1,)"), std::string::npos) << json;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
  }
  return lines;
}

// At each width a line fits, the name is there, and so is the column by which the rows are sorted.
TEST(Calls, ANarrowTableHasItsMostImportantColumns) {
  const std::vector<CallSummary> rows = {row("f", 1234567, 12'345'678), row("std::vector<int>::push_back", 3, 100)};
  for (std::size_t columns = 20; columns <= 200; ++columns)
    for (const CallOrder order : {CallOrder::total, CallOrder::p99, CallOrder::longest}) {
      const auto lines = lines_of(render_calls(rows, order, columns));
      ASSERT_EQ(lines.size(), 3U);
      for (const std::string& line : lines) EXPECT_LE(line.size(), columns) << line;
      const char* const sorted_by = order == CallOrder::total ? " total" : order == CallOrder::p99 ? " p99" : " max";
      EXPECT_NE(lines[0].find(sorted_by), std::string::npos) << lines[0];
      const std::string both = lines[1] + lines[2];
      EXPECT_NE(both.find(columns < 40 ? "std" : "std::vector<int>"), std::string::npos) << both;
    }
  EXPECT_EQ(lines_of(render_calls(rows, CallOrder::total, 200)), lines_of(render_calls(rows)));
  EXPECT_EQ(lines_of(render_calls(rows, CallOrder::total, 48))[2], "        3   100 ns  std::vector<int>::push_back");
}

TEST(Calls, TimesHaveThreeDigits) {
  const std::pair<std::uint64_t, const char*> rows[] = {{0, "0 ns"},
                                                        {999, "999 ns"},
                                                        {1000, "1.00 us"},
                                                        {9994, "9.99 us"},
                                                        {9996, "10.0 us"},
                                                        {99'940, "99.9 us"},
                                                        {99'960, "100 us"},
                                                        {999'499, "999 us"},
                                                        {999'500, "1.00 ms"},
                                                        {1'234'567'890, "1.23 s"},
                                                        {123'456'789'012'345, "123457 s"}};
  for (const auto& [time, expected] : rows)
    EXPECT_NE(render_calls({row("f", 1, time)}).find(std::string("  ") + expected + "  "), std::string::npos) << time;
}

TEST(Calls, AScreenHasItsLinesAndColumnsAlone) {
  std::vector<CallSummary> many;
  for (int i = 0; i < 50; ++i)
    many.push_back(row(i % 2 == 0 ? "even" : "odd", static_cast<std::uint64_t>(i + 1), 1000));
  const std::string screen = top_screen(many, CallOrder::calls, 10, 40);
  EXPECT_EQ(std::count(screen.begin(), screen.end(), '\n'), 9);
  EXPECT_EQ(screen.substr(0, 14), "calls by calls");
  EXPECT_NE(screen.find("\n   50  1.00 us  "), std::string::npos) << screen;
  for (std::size_t at = 0, end = 0; at < screen.size(); at = end + 1) {
    end = std::min(screen.find('\n', at), screen.size());
    EXPECT_LE(end - at, 40U);
  }
  EXPECT_EQ(order_of_key('x'), CallOrder::longest);
  EXPECT_EQ(order_of_key('?'), std::nullopt);
}

// The cursor stays on the last column once that is written: what clears from there on takes its character away.
TEST(Calls, ALineIsClearedBeforeItIsDrawn) {
  EXPECT_EQ(top_bytes("one\n\nthree"), "\x1b[H\x1b[Kone\r\n\x1b[K\r\n\x1b[Jthree");
  EXPECT_EQ(top_bytes("one\n"), "\x1b[H\x1b[Kone\r\n\x1b[J");
  EXPECT_EQ(top_bytes("one"), "\x1b[H\x1b[Jone");
}

TEST(Calls, DefinitionsThatSumUpFollowTheOthersOrReplaceThem) {
  Definitions both{{{.text = "p:a /x:f %di", .default_object = "/x", .triggers = {"traceoff"}}}, {"-p"}};
  Definitions alone = both;
  add_sums(both, true);
  ASSERT_EQ(both.list.size(), 2U);
  EXPECT_FALSE(both.list[0].sums_calls);
  EXPECT_TRUE(both.list[1].sums_calls && both.list[1].triggers.empty());
  EXPECT_EQ(both.places, (std::vector<std::string>{"-p", "-p"}));
  add_sums(alone, false);
  ASSERT_EQ(alone.list.size(), 1U);
  EXPECT_TRUE(alone.list[0].sums_calls);
  EXPECT_EQ(alone.list[0].default_object, "/x");
  EXPECT_EQ(alone.list[0].triggers.size(), 1U);
}

TEST(Stacks, EachDefinitionHasOneTriggerForThem) {
  Definitions all{{{.text = "malloc"}, {.text = "free", .triggers = {"stacktrace if n > 3", "traceoff"}}},
                  {"-p", "-p"}};
  add_stacks(all);
  EXPECT_EQ(all.list[0].triggers, std::vector<std::string>{"stacktrace"});
  EXPECT_EQ(all.list[1].triggers.size(), 2U);
}

}  // namespace
}  // namespace uprobe::cli
