// SPDX-License-Identifier: MIT
// The newest hits in memory, and a recording of them that replays.
#include "engine/recording/flight.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "engine/recording/replay.h"
#include "tests/output/sample.h"

namespace uprobe::recording {
namespace {

using format::Kind;
using format::Record;

class FlightTest : public testing::Test {
 protected:
  FlightTest() {
    records_[0].text("s", "a\nb").field("k", Kind::signed_decimal, -3);
    records_[1].field("y", Kind::symbol, std::uint64_t{0x4010});
    records_[1].add_stack({100, 200});
  }
  ~FlightTest() override { ::unlink(path_.c_str()); }
  // `type`: as the session numbers the event.
  void take(Flight& flight, std::size_t record, std::uint16_t type, std::uint64_t ns) {
    trace::EventRecord event = records_[record].event(ns);
    event.type = type;
    flight.take(event, records_[record].layout, "zsh");
  }
  std::vector<std::string> lines_of(const Flight& flight) {
    std::ofstream(path_, std::ios::binary) << flight.whole(totals_);
    const auto recording = open_recording(path_);
    std::string text;
    EXPECT_TRUE(recording);
    const auto lost =
        replay(*recording, {.without_header = true}, [&](std::string_view more) { return text += more, 0; });
    EXPECT_TRUE(lost);
    EXPECT_EQ(lost ? lost->size() : 0, 1u);
    std::vector<std::string> lines;
    for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
      lines.push_back(text.substr(at, end - at));
    return lines;
  }

  std::vector<Record> records_ = {Record("e"), Record("f", true)};
  const std::vector<format::Total> totals_ = {{.name = "uprobes/e", .recorded = 5, .lost = 2}};
  const std::string path_ = testing::TempDir() + "flight-" + std::to_string(::getpid());
};

TEST_F(FlightTest, WhatIsKeptReplays) {
  Flight flight(1 << 20);
  take(flight, 1, 7, 1'000'000'000);  // whatever numbers the events have
  take(flight, 0, 3, 2'000'000'000);
  take(flight, 1, 7, 3'000'000'000);
  const auto lines = lines_of(flight);
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  EXPECT_LT(all.find(" 1.000000: f:"), all.find(" 2.000000: e:"));
  EXPECT_LT(all.find(" 2.000000: e:"), all.find(" 3.000000: f:"));
  EXPECT_NE(all.find("zsh-"), std::string::npos);
  EXPECT_NE(all.find(R"(s="a\nb" k=-3)"), std::string::npos) << all;
  EXPECT_EQ(flight.kept(), 3u);
  EXPECT_EQ(lines_of(flight), lines) << "it stays";
}

TEST_F(FlightTest, NothingIsARecordingToo) { EXPECT_TRUE(lines_of(Flight(1 << 16)).empty()); }

TEST_F(FlightTest, TheOldestAreDropped) {
  constexpr std::size_t kLimit = 64 << 10;
  constexpr std::uint64_t kHits = 10'000;
  Flight flight(kLimit);
  for (std::uint64_t i = 1; i <= kHits; ++i) take(flight, 0, 0, i * 1'000'000'000);
  EXPECT_EQ(flight.kept() + flight.dropped(), kHits);
  const auto lines = lines_of(flight);
  ASSERT_EQ(lines.size(), flight.kept());
  for (std::size_t i = 0; i < lines.size(); ++i)
    ASSERT_NE(lines[i].find(" " + std::to_string(kHits - lines.size() + i + 1) + ".000000: e:"), std::string::npos);
  EXPECT_GT(flight.kept(), kLimit / 2 / 100);  // a hit takes less than 100 bytes
  EXPECT_LT(flight.kept(), kLimit / 40);
}

}  // namespace
}  // namespace uprobe::recording
