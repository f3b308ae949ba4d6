// SPDX-License-Identifier: MIT
// Several live parts are one trace, and a process's writes to its own part delay the records of another by a bounded time. And what the
// reader knows to have handed on.
#include <gtest/gtest.h>

#include "engine/trace/reader.h"
#include "tests/trace/ring_writer.h"

namespace uprobe::test {
namespace {

using trace::Reader;
using trace::TaskNames;

constexpr std::uint64_t kStart = 1'000'000'000, kMillisecond = 1'000'000, kBound = 100 * kMillisecond;
using Times = std::vector<std::uint64_t>;

// Ring 0 is a CPU's, ring 1 is claimed.
class PartsTest : public testing::Test {
 protected:
  PartsTest() : area_(make_area(2, 8192, {make_program(24)}, 1)), names_("/nonexistent") {}

  std::size_t add_part() { return area_.add_live().take(); }
  bool write(std::size_t part, std::uint32_t ring, std::uint64_t time) {
    return RingWriter(area_.live(part), ring, 8192).write(time, make_payload(0, 55, time));
  }
  shared::Ring& ring(std::size_t part, std::uint32_t index) { return area_.live(part).ring(index); }
  Reader make_reader() { return Reader(area_, time_.clock, names_, time_.options()); }

  // How long a record at the start of the first part waits while `lie` runs before each look.
  template <class Lie>
  std::uint64_t delay_by(const Lie& lie) {
    Reader reader = make_reader();
    EXPECT_TRUE(write(0, 1, kStart));
    for (std::uint64_t waited = 1; waited < 1000; ++waited) {
      time_.now = kStart + waited * kMillisecond;
      lie(waited);
      reader.poll(got_.sink());
      if (!got_.items.empty()) return waited * kMillisecond;
    }
    return ~std::uint64_t{0};
  }

  Area area_;
  FakeTime time_;
  TaskNames names_;
  Collected got_;
};

TEST_F(PartsTest, AreMergedByTime) {
  const std::size_t second = add_part(), third = add_part();
  ASSERT_TRUE(write(0, 1, kStart + 30) && write(second, 1, kStart + 10) && write(third, 0, kStart + 20) &&
              write(second, 0, kStart + 40));
  Reader reader = make_reader();
  time_.now = kStart + kMillisecond;
  reader.poll(got_.sink());
  EXPECT_EQ(got_.times(), (Times{kStart + 10, kStart + 20, kStart + 30, kStart + 40}));
}

TEST_F(PartsTest, OneThatComesLaterIsRead) {
  Reader reader = make_reader();
  ASSERT_TRUE(write(0, 1, kStart));
  time_.now = kStart + kMillisecond;
  reader.poll(got_.sink());
  const std::size_t second = add_part();
  ASSERT_TRUE(write(second, 0, kStart + 2 * kMillisecond));
  time_.now = kStart + 3 * kMillisecond;
  reader.poll(got_.sink());
  EXPECT_EQ(got_.times(), (Times{kStart, kStart + 2 * kMillisecond}));
}

TEST_F(PartsTest, ARecordThatIsNeverPublishedDelaysByTheBound) {
  const std::size_t other = add_part();
  ring(other, 1).owner = 77, ring(other, 1).stamp = kStart - 5;
  const std::uint64_t delay = delay_by([](std::uint64_t) {});
  EXPECT_GT(delay, kBound / 2) << "an honest one is waited for";
  EXPECT_LE(delay, kBound + kMillisecond);
}

TEST_F(PartsTest, SoDoesOneAfterTheOther) {
  const std::size_t other = add_part();
  EXPECT_LE(delay_by([&](std::uint64_t round) {
              ring(other, 1).owner = 77 + static_cast<std::uint32_t>(round), ring(other, 1).stamp = kStart - round;
            }),
            kBound + kMillisecond);
}

TEST_F(PartsTest, SoDoSectionsThatBeginAnewForEver) {
  const std::size_t other = add_part();
  EXPECT_LE(delay_by([&](std::uint64_t round) {
              ring(other, 0).begun = static_cast<std::uint32_t>(round) + 1, ring(other, 0).stamp = 1;
            }),
            kBound + kMillisecond);
}

TEST_F(PartsTest, SoDoAllRingsOfAllParts) {
  std::vector<std::size_t> others;
  while (area_.live_count() < Area::kMostParts) others.push_back(add_part());
  EXPECT_LE(delay_by([&](std::uint64_t round) {
              for (const std::size_t part : others) {
                ring(part, 0).begun = static_cast<std::uint32_t>(round) + 1,
                           ring(part, 0).stamp = round % 2 == 0 ? 0 : ~0ull;
                ring(part, 1).owner = static_cast<std::uint32_t>(part + round), ring(part, 1).stamp = kStart - 1;
                ring(part, 1).commit = round << 32 | round;
              }
            }),
            kBound + kMillisecond);
}

// A tool that leaves waits for what is older than its leaving, however much comes after that.
TEST(ReaderTest, WhatIsHandedOnIsKnownWhileThereIsMore) {
  Area area = make_area(1, 8u << 20, {make_program(24)});
  FakeTime time;
  TaskNames names("/nonexistent");
  Collected got;
  Reader reader(area, time.clock, names, time.options());
  RingWriter writer(area, 0);
  for (std::uint64_t i = 0; i < 100'000; ++i) ASSERT_TRUE(writer.write(kStart + i, make_payload(0, 55, i)));
  time.now += kMillisecond;
  reader.poll(got.sink());
  ASSERT_EQ(reader.next_poll().count(), 0) << "there is more";
  EXPECT_TRUE(reader.has_handed_on_ticks(kStart + 65'000));
  EXPECT_FALSE(reader.has_handed_on_ticks(kStart + 65'536)) << "a record of that time waits";
  reader.poll(got.sink());
  EXPECT_TRUE(reader.has_handed_on_ticks(kStart + 100'000));
  EXPECT_FALSE(reader.has_handed_on_ticks(kStart + kMillisecond)) << "a hit may come";
}

}  // namespace
}  // namespace uprobe::test
