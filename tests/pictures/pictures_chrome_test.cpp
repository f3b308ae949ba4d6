// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "engine/pictures/chrome.h"
#include "tests/output/sample.h"

namespace uprobe::format {
namespace {

class Chrome : public testing::Test {
 protected:
  Chrome() {
    entry_.field("n", Kind::signed_decimal, 7);
    back_.field("n", Kind::signed_decimal, 8);
    entry_.layout.function = back_.layout.function = "/prog:0x1136";
    formatter_.add(entry_.layout);
    formatter_.add(back_.layout);
    entry_.layout.function = "/prog:0x5000";
    formatter_.add(entry_.layout);
  }
  void hit(std::uint16_t type, std::uint64_t ns, std::uint32_t tid = 13) {
    Record record = type == 1 ? back_ : entry_;
    trace::EventRecord event = record.event(ns);
    event.type = type;
    event.tid = tid;
    formatter_.append(event, "zsh", out_);
  }
  std::size_t count(const std::string& text) const {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = out_.view().find(text, at)) != std::string_view::npos; ++at) ++found;
    return found;
  }
  std::string finish(const std::vector<Total>& totals = {}) {
    formatter_.end(totals, out_);
    return std::string(out_.view());
  }

  Record entry_ = Record("f"), back_ = Record("f_back", true);
  ChromeFormatter formatter_{{}};
  Buffer out_;
};

TEST_F(Chrome, WithoutHitsItIsAnEmptyArray) { EXPECT_EQ(finish(), "[]\n"); }

TEST_F(Chrome, AFieldIsNotTakenForTheReturn) {
  entry_.layout.fields[0].name = "return";
  formatter_.add(entry_.layout);
  hit(3, 5'000);
  EXPECT_NE(finish().find(R"("args":{"field.return":7}})"), std::string::npos);
}

TEST_F(Chrome, ACallIsASlice) {
  hit(0, 5'000);
  hit(1, 7'250);
  EXPECT_EQ(finish(), R"([
{"ph":"M","pid":12,"tid":13,"name":"thread_name","args":{"name":"zsh"}},
{"ph":"X","pid":12,"tid":13,"ts":5.000,"dur":2.250,"name":"f","args":{"n":7,"return":{"n":8}}}
]
)");
}

TEST_F(Chrome, HitsWithoutAPartnerAreInstants) {
  hit(1, 1'000);
  hit(0, 2'000);
  hit(2, 3'000);
  hit(1, 4'000);
  finish();
  EXPECT_EQ(count(R"("ph":"X")"), 1u);
  EXPECT_EQ(count(R"("ph":"i","pid":12,"tid":13,"ts":1.000,"s":"t","name":"f_back","args":{"n":8}})"), 1u);
  EXPECT_EQ(count(R"("ph":"i","pid":12,"tid":13,"ts":3.000)"), 1u) << out_.view();
}

TEST_F(Chrome, ThreadsHaveCallsOfTheirOwn) {
  hit(0, 1'000);
  hit(0, 2'000, 14);
  hit(1, 3'000);
  hit(1, 4'000, 14);
  finish();
  EXPECT_EQ(count(R"("tid":13,"ts":1.000,"dur":2.000)"), 1u);
  EXPECT_EQ(count(R"("tid":14,"ts":2.000,"dur":2.000)"), 1u);
}

TEST_F(Chrome, CallsThatNeverReturnAreBounded) {
  for (std::uint64_t i = 0; i < 3000; ++i) hit(0, i);
  EXPECT_EQ(count(R"("ph":"i")"), 3000u - 1024);
  finish();
  EXPECT_EQ(count(R"("ph":"i")"), 3000u);
}

TEST_F(Chrome, LossesAreSaid) {
  hit(0, 1'000);
  EXPECT_NE(finish({{.name = "uprobes/f", .lost = 3}})
                .find(R"("name":"lost","args":{"event":"uprobes/f","hits":3,"returns":0}})"),
            std::string::npos);
}

}  // namespace
}  // namespace uprobe::format
