// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/pictures/graph.h"
#include "tests/output/sample.h"

namespace uprobe::format {
namespace {

enum Type : std::uint16_t { outer, outer_back, inner, inner_back, leaf, timed };

class Graph : public testing::Test {
 protected:
  explicit Graph(std::uint64_t min_latency = 0) : formatter_({.escape_control = true, .min_latency = min_latency}) {
    add("outer", "/prog:1", false), add("outer_back", "/prog:1", true), add("inner", "/prog:2", false);
    add("inner_back", "/prog:2", true), add("leaf", "/prog:3", false), add("timed", "/prog:4", true);
  }
  void hit(Type type, std::uint64_t ns, std::uint32_t tid = 13, std::uint32_t value = 7) {
    Record record = records_[type];
    std::memcpy(record.payload.data() + record.layout.fields[0].offset, &value, sizeof value);
    trace::EventRecord event = record.event(ns);
    event.type = type;
    event.tid = event.pid = tid;
    formatter_.append(event, "zsh", out_);
  }
  // The lines without the columns of the task.
  std::string finish() {
    formatter_.end({}, out_);
    std::string text, all(out_.view());
    for (std::size_t at = 0, end; at < all.size(); at = end + 1) {
      end = all.find('\n', at);
      text += all.substr(at + 25, end - at - 24);
    }
    return text;
  }

  GraphFormatter formatter_;
  Buffer out_;

 private:
  void add(const std::string& event, const std::string& function, bool is_return) {
    Record& record = records_.emplace_back(event, is_return);
    record.field(event == "timed" ? "latency" : "n", event == "timed" ? Kind::unsigned_decimal : Kind::signed_decimal,
                 std::uint32_t{7});
    record.layout.fields[0].of_entry = event == "timed";
    record.layout.function = function;
    formatter_.add(record.layout);
  }
  std::vector<Record> records_;
};

TEST_F(Graph, CallsAreATree) {
  hit(outer, 1'000'000), hit(inner, 2'000'000), hit(inner_back, 2'001'250), hit(leaf, 3'000'000);
  hit(outer_back, 4'000'500);
  EXPECT_EQ(finish(),
            "      0.001000                outer(n=7) {\n"
            "      0.002000      1.250 us    inner(n=7) = 7\n"
            "      0.003000                  leaf(n=7)\n"
            "      0.004001   3000.500 us  } = 7 /* outer */\n");
}

TEST_F(Graph, CallsThatWereLeftAreClosed) {
  hit(outer, 1'000'000), hit(inner, 2'000'000), hit(inner, 3'000'000), hit(outer_back, 4'000'000);
  EXPECT_EQ(finish(),
            "      0.001000                outer(n=7) {\n"
            "      0.002000                  inner(n=7) {\n"
            "      0.003000                    inner(n=7) {\n"
            "      0.004000                    } /* inner: no return was recorded */\n"
            "      0.004000                  } /* inner: no return was recorded */\n"
            "      0.004000   3000.000 us  } = 7 /* outer */\n");
}

TEST_F(Graph, CallsThatNeverEndAreClosedAtTheEnd) {
  hit(outer, 1'000'000);
  EXPECT_EQ(finish(),
            "      0.001000                outer(n=7) {\n"
            "      0.001000                } /* outer: no return was recorded */\n");
}

TEST_F(Graph, ReturnsWithoutEntriesAreLeaves) {
  hit(outer_back, 1'000'000), hit(timed, 2'000'000, 13, 1'500);
  EXPECT_EQ(finish(),
            "      0.001000                outer_back() = 7 /* no entry was recorded */\n"
            "      0.002000      1.500 us  timed() = 1500\n");
}

TEST_F(Graph, ThreadsHaveTreesOfTheirOwn) {
  hit(outer, 1'000'000, 13), hit(outer, 2'000'000, 14), hit(outer_back, 3'000'000, 13), hit(outer_back, 5'000'000, 14);
  EXPECT_EQ(finish(),
            "      0.001000   2000.000 us  outer(n=7) = 7\n"
            "      0.002000   3000.000 us  outer(n=7) = 7\n");
  EXPECT_NE(out_.view().find("             zsh-14      "), std::string_view::npos);
}

TEST_F(Graph, NamesCannotForgeLines) {
  Record record("a\nb");
  formatter_.add(record.layout);
  trace::EventRecord event = record.event();
  event.type = 6;
  formatter_.append(event, "z\nsh", out_);
  EXPECT_NE(out_.view().find("z\\nsh-13"), std::string_view::npos);
  EXPECT_NE(out_.view().find("a\\nb()"), std::string_view::npos);
}

class SlowCalls : public Graph {
 protected:
  SlowCalls() : Graph(1'000) {}
};

TEST_F(SlowCalls, ShortOnesAreLeftOut) {
  hit(outer, 1'000), hit(inner, 1'100), hit(inner_back, 1'200), hit(outer_back, 1'999);
  hit(leaf, 5'000), hit(timed, 6'000, 13, 999);
  EXPECT_EQ(finish(), "");
}

TEST_F(SlowCalls, LongOnesAreWhole) {
  hit(outer, 1'000), hit(inner, 1'100), hit(inner_back, 1'200), hit(outer_back, 2'000);
  hit(timed, 6'000, 13, 1'000);
  EXPECT_EQ(finish(),
            "      0.000001                outer(n=7) {\n"
            "      0.000001      0.100 us    inner(n=7) = 7\n"
            "      0.000002      1.000 us  } = 7 /* outer */\n"
            "      0.000006      1.000 us  timed() = 1000\n");
}

TEST_F(SlowCalls, TheyAreShownAsSoonAsTheyAreLong) {
  hit(outer, 1'000), hit(leaf, 1'100);
  EXPECT_EQ(out_.size(), 0u);
  hit(leaf, 2'500);
  EXPECT_NE(out_.size(), 0u);
  EXPECT_EQ(finish(),
            "      0.000001                outer(n=7) {\n"
            "      0.000001                  leaf(n=7)\n"
            "      0.000003                  leaf(n=7)\n"
            "      0.000003                } /* outer: no return was recorded */\n");
}

TEST_F(SlowCalls, LinesThatWaitAreBounded) {
  hit(outer, 1'000);
  for (int i = 0; i < 200'000; ++i) hit(leaf, 1'000);
  hit(outer_back, 9'000);
  const std::string text = finish();
  EXPECT_LT(text.size(), std::size_t{5} << 20);
  EXPECT_NE(text.find(" lines were too many to wait for the latency */\n"), std::string::npos);
}

}  // namespace
}  // namespace uprobe::format
