// SPDX-License-Identifier: MIT
// The reader's runs for recordings: each ring by itself, with all that the merge would have said of the records.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/shared/task_name.h"
#include "tests/trace/ring_writer.h"

namespace uprobe::test {
namespace {

constexpr std::uint64_t kStart = 1'000'000'000;

class ReaderRuns : public testing::Test {
 protected:
  ReaderRuns()
      : area_(make_area(3, 1 << 20, {make_program(24), make_program(16)})),
        names_("/nonexistent"),
        reader_(area_, time_.clock, names_, time_.options()) {}

  bool write(std::uint32_t ring, std::uint64_t offset, std::uint32_t tid = 55, std::uint16_t flags = 0) {
    return RingWriter(area_, ring).write(kStart + offset, make_payload(0, tid, offset), flags);
  }
  // What a poll hands on: "ring/thread name: times" for a run, and "time" for a record by itself.
  std::vector<std::string> poll() {
    time_.now += 1'000'000;
    std::vector<std::string> got;
    reader_.poll([&](const trace::EventRecord& record) { got.push_back(std::to_string(record.ns - kStart)); },
                 [&](const trace::RecordRun& run) { got.push_back(text_of(run)); });
    return got;
  }
  static std::string text_of(const trace::RecordRun& run) {
    std::string text = std::to_string(run.ring) + "/" + std::to_string(run.tid) + " " + std::string(run.comm) + ":";
    std::uint32_t count = 0;
    for (std::size_t at = 0; at < run.records.size(); ++count) {
      RecordHead head;
      std::memcpy(&head, run.records.data() + at, sizeof head);
      text += " " + std::to_string(head.tsc - kStart);
      at += head.length;
    }
    EXPECT_EQ(run.count, count);
    return text;
  }

  Area area_;
  FakeTime time_;
  trace::TaskNames names_;
  trace::Reader reader_;
};

using Texts = std::vector<std::string>;

TEST_F(ReaderRuns, AreOfOneRing) {
  write(1, 10), write(2, 20), write(1, 30);
  EXPECT_EQ(poll(), (Texts{"1/55 <...>: 10 30", "2/55 <...>: 20"}));
  EXPECT_EQ(reader_.counts().recorded[0], 3u);
  EXPECT_EQ(poll(), Texts());
}

TEST_F(ReaderRuns, AreOfOneTask) {
  write(0, 10), write(0, 20, 56), write(0, 30, 56), write(0, 40);
  EXPECT_EQ(poll(), (Texts{"0/55 <...>: 10", "0/56 <...>: 20 30", "0/55 <...>: 40"}));
}

TEST_F(ReaderRuns, AreOfOneName) {
  names_.learn(55, "a", kStart);
  names_.learn(55, "b", kStart + 20);
  write(0, 30), write(1, 10), write(1, 19), write(1, 20);
  EXPECT_EQ(poll(), (Texts{"0/55 b: 30", "1/55 a: 10 19", "1/55 b: 20"}));
}

// A name applies to hits of every ring.
TEST_F(ReaderRuns, ARecordThatAsksForMorePutsAllInOrder) {
  std::string name = "new";
  name.resize(shared::kNameBytes);
  const std::vector<std::uint8_t> bytes(name.begin(), name.end());
  write(0, 30), write(1, 10);
  RingWriter(area_, 1).write(kStart + 20, make_payload(0, 55, bytes), shared::kRecordTaskName);
  EXPECT_EQ(poll(), (Texts{"10", "30"}));
  write(0, 40);
  EXPECT_EQ(poll(), (Texts{"0/55 new: 40"}));
  for (const std::uint16_t flag : {shared::kRecordCommLater, shared::kRecordJudgeLater, shared::kRecordStack}) {
    write(0, 50), write(1, 45, 55, flag);
    EXPECT_EQ(poll(), (Texts{"45", "50"})) << flag;
  }
  write(0, 60, 55, shared::kRecordNoEntry);
  EXPECT_EQ(poll(), (Texts{"0/55 new: 60"}));
}

TEST_F(ReaderRuns, ATaskOfAnotherNamespaceIsLookedUp) {
  const shared::TaskNumber task{.process = 70, .thread = 3};
  RingWriter(area_, 0).write(kStart + 10, make_payload(0, task, std::vector<std::uint8_t>(8)));
  EXPECT_EQ(poll(), Texts{"10"});
}

// Only up to the time before which no record can come any more.
TEST_F(ReaderRuns, WaitForAWriter) {
  RingWriter late(area_, 2);
  ASSERT_TRUE(late.claim(1));
  late.stamp(kStart + 20);
  write(0, 10), write(0, 3000), write(0, 30'000);
  EXPECT_EQ(poll(), Texts{});
  late.give_back();
  EXPECT_EQ(poll(), (Texts{"0/55 <...>: 10 3000 30000"}));
}

// A ring is taken in portions, and a record may be larger than one.
TEST_F(ReaderRuns, RecordsOfEverySizeCome) {
  std::size_t hits = 0;
  for (std::uint64_t time = 1; time <= 5000; ++time) write(0, time);
  for (std::uint64_t time = 1; time <= 6; ++time)
    RingWriter(area_, 1).write(kStart + 10 * time, make_payload(1, 55, std::vector<std::uint8_t>(60'000)));
  time_.now += 1'000'000;
  std::uint64_t largest = 0;
  const auto none = [](const trace::EventRecord&) { FAIL(); };
  const auto count = [&](const trace::RecordRun& run) {
    hits += run.count;
    largest = std::max<std::uint64_t>(largest, run.records.size());
  };
  for (int turns = 0; turns < 3; ++turns) reader_.poll(none, count);
  EXPECT_EQ(hits, 5006u);
  EXPECT_GT(largest, 60'000u);
  EXPECT_EQ(reader_.counts().damaged + reader_.counts().missing, 0u);
  EXPECT_EQ(reader_.counts().recorded, (std::vector<std::uint64_t>{5000, 6}));
}

TEST_F(ReaderRuns, WhatIsNoRecordIsCountedAndNotHandedOn) {
  write(0, 10);
  RingWriter(area_, 0).write(kStart + 20, make_payload(7, 55, std::uint64_t{0}));
  RingWriter(area_, 0).write(kStart + 25, make_payload(0, 55, std::vector<std::uint8_t>(4)));
  write(0, 30), write(0, 5);
  EXPECT_EQ(poll(), (Texts{"0/55 <...>: 10 30 30"})) << "the last one is not before the one before it";
  EXPECT_EQ(reader_.counts().damaged, 2u);
}

}  // namespace
}  // namespace uprobe::test
