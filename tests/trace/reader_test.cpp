// SPDX-License-Identifier: MIT
// The reader against rings that a well-behaved writer fills: order, watermark, wrap-around, loss, claims.
#include "engine/trace/reader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "engine/shared/task_name.h"
#include "tests/trace/ring_writer.h"

namespace uprobe::test {
namespace {

using std::chrono::microseconds;
using trace::Reader;
using trace::TaskNames;

constexpr std::uint64_t kStart = 1'000'000'000;
constexpr std::uint64_t kMillisecond = 1'000'000;

std::vector<std::uint64_t> offsets(const Collected& got) {
  std::vector<std::uint64_t> all;
  for (const std::uint64_t ns : got.times()) all.push_back(ns - kStart);
  return all;
}

using Times = std::vector<std::uint64_t>;

class ReaderTest : public testing::Test {
 protected:
  explicit ReaderTest(std::uint32_t rings = 3, std::uint64_t ring_bytes = 8192)
      : area_(make_area(rings, ring_bytes, {make_program(24), make_program(16)})), names_("/nonexistent") {}

  Reader make_reader() { return Reader(area_, time_.clock, names_, time_.options()); }
  bool write(std::uint32_t ring, std::uint64_t offset, std::uint64_t argument = 0, std::uint16_t flags = 0) {
    return RingWriter(area_, ring).write(kStart + offset, make_payload(0, 55, argument), flags);
  }

  Area area_;
  FakeTime time_;
  TaskNames names_;
  Collected got_;
};

TEST_F(ReaderTest, HandsOnWhatWasWritten) {
  Reader reader = make_reader();
  write(1, 10, 0xabcdef);
  time_.now += kMillisecond;
  reader.poll(got_.sink());
  ASSERT_EQ(got_.items.size(), 1u);
  EXPECT_EQ(got_.items[0].ns, kStart + 10);
  EXPECT_EQ(got_.items[0].tid, 55u);
  EXPECT_EQ(got_.items[0].type, 0u);
  EXPECT_EQ(got_.items[0].cpu, 3u);
  EXPECT_EQ(got_.items[0].payload, make_payload(0, 55, 0xabcdef));
  EXPECT_EQ(reader.counts().recorded, (Times{1, 0}));
  EXPECT_EQ(reader.counts().damaged, 0u);
  EXPECT_EQ(area_.ring(1).tail, area_.ring(1).commit >> 32);
}

std::vector<std::uint8_t> name_payload(std::uint32_t tid, std::string name) {
  name.resize(shared::kNameBytes);
  const std::vector<std::uint8_t> bytes(name.begin(), name.end());
  return make_payload(0, tid, bytes);
}

// In the order of time, in any ring; a name does not count as a hit.
TEST_F(ReaderTest, NamesComeWithTheHits) {
  Reader reader = make_reader();
  write(0, 20), write(0, 40), write(0, 60);
  RingWriter names(area_, 1);
  names.write(kStart + 10, name_payload(55, "first"), shared::kRecordTaskName);
  names.write(kStart + 30, name_payload(55, "second"), shared::kRecordTaskName);
  names.write(kStart + 50, make_payload(0, 55), shared::kRecordTaskName);
  time_.now += kMillisecond;
  std::vector<std::string> shown;
  reader.poll([&](const trace::EventRecord& record) { shown.emplace_back(names_.name(record.tid)); });
  EXPECT_EQ(shown, (std::vector<std::string>{"first", "second", "<...>"}));
  EXPECT_EQ(reader.counts().recorded, (Times{3, 0}));
  EXPECT_EQ(reader.counts().damaged + reader.counts().missing, 0u);
}

// The records that the reader hands on have the tool's numbers, in the form of the event's format.
TEST_F(ReaderTest, ThreadsOfOtherNamespacesHaveNumbersOfTheTools) {
  Reader reader = make_reader();
  const shared::TaskNumber thread{.process = 70000, .thread = 7},
      child{.process = 70000, .thread = 8, .of_child = true};
  names_.learn_number(thread, 70003);
  RingWriter writer(area_, 0);
  std::string name = "worker";
  name.resize(shared::kNameBytes);
  writer.write(kStart + 1, make_payload(0, thread, std::vector<std::uint8_t>(name.begin(), name.end())),
               shared::kRecordTaskName);
  const std::vector<std::uint8_t> rest(8);
  for (const shared::TaskNumber& task : {thread, shared::TaskNumber{.process = 70000, .thread = 9}, child})
    writer.write(kStart + 2, make_payload(0, task, rest));
  time_.now += kMillisecond;
  std::vector<std::pair<std::uint32_t, std::string>> shown;
  reader.poll([&](const trace::EventRecord& record) {
    shown.emplace_back(record.tid, names_.name(record.task, record.ns));
    EXPECT_EQ(std::vector<std::uint8_t>(record.payload.begin(), record.payload.end()),
              make_payload(0, record.tid, rest));
  });
  EXPECT_EQ(shown,
            (std::vector<std::pair<std::uint32_t, std::string>>{{70003, "worker"}, {70000, "<...>"}, {0, "<...>"}}));
  EXPECT_EQ(reader.counts().damaged, 0u);
}

TEST_F(ReaderTest, ANameOfAnotherSizeIsDamaged) {
  Reader reader = make_reader();
  RingWriter writer(area_, 1);
  writer.write(kStart + 10, make_payload(0, 55, 7), shared::kRecordTaskName);
  std::string long_name(64, 'x');
  const std::vector<std::uint8_t> bytes(long_name.begin(), long_name.end());
  writer.write(kStart + 20, make_payload(0, 55, bytes), shared::kRecordTaskName);
  write(1, 30);
  time_.now += kMillisecond;
  reader.poll(got_.sink());
  EXPECT_EQ(got_.items.size(), 1u);
  EXPECT_EQ(names_.name(55), "<...>");
  EXPECT_EQ(reader.counts().damaged, 2u);
}

TEST_F(ReaderTest, MergesTheRingsByTime) {
  Reader reader = make_reader();
  for (const std::uint64_t offset : {10, 40, 45}) write(0, offset);
  for (const std::uint64_t offset : {20, 30, 60}) write(1, offset);
  for (const std::uint64_t offset : {5, 50}) write(2, offset);
  time_.now += kMillisecond;
  reader.poll(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{5, 10, 20, 30, 40, 45, 50, 60}));
  EXPECT_EQ(reader.counts().order_breaks, 0u);
}

TEST_F(ReaderTest, HoldsBackWhatIsYoungerThanTheSlack) {
  Reader reader = make_reader();
  write(0, 1000);
  write(0, 9000);
  time_.now = kStart + 10'000;  // 2 us of slack: everything up to 8000 is certain
  reader.poll(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{1000}));
  time_.now = kStart + 11'000;
  reader.poll(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{1000, 9000}));
}

// The record that a writer is about to publish must come first, so the younger ones of other rings wait for it.
TEST_F(ReaderTest, WaitsForAWriterThatHasStamped) {
  Reader reader = make_reader();
  RingWriter slow(area_, 0);
  ASSERT_TRUE(slow.claim(77));
  slow.stamp(kStart + 100'000);
  write(1, 50'000);
  write(1, 200'000);
  time_.now = kStart + kMillisecond;
  reader.poll(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{50'000}));
  EXPECT_TRUE(reader.has_handed_on(kStart + 90'000) && !reader.has_handed_on(kStart + 100'000));
  ASSERT_TRUE(slow.build(kStart + 100'000, make_payload(0, 77, 0)));
  slow.commit();
  slow.give_back();
  reader.poll(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{50'000, 100'000, 200'000}));
  EXPECT_TRUE(reader.has_handed_on(kStart + 200'000));
}

// Claimed, but not yet stamped: the stamp is that of an older record. The ring was free at the last poll, which is the
// better bound.
TEST_F(ReaderTest, AnOldStampHoldsUpNoMoreThanTheLastPoll) {
  Reader reader = make_reader();
  write(0, 10);
  time_.now = kStart + 100'000;
  reader.poll(got_.sink());
  ASSERT_TRUE(RingWriter(area_, 0).claim(77));
  write(1, 90'000);
  write(1, 150'000);
  time_.now = kStart + 300'000;
  reader.poll(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{10, 90'000}));
}

TEST_F(ReaderTest, FinishHandsOnEverythingCommitted) {
  Reader reader = make_reader();
  RingWriter stuck(area_, 2);
  ASSERT_TRUE(stuck.claim(77));
  stuck.stamp(kStart);
  write(0, 300);
  write(1, 200);
  reader.finish(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{200, 300}));
}

TEST_F(ReaderTest, DoesNotWaitForAStalledWriterForEver) {
  Reader reader = make_reader();
  RingWriter stuck(area_, 2);
  ASSERT_TRUE(stuck.claim(77));
  stuck.stamp(kStart + 100);
  write(0, 5000);
  for (int i = 0; i < 10; ++i) {
    time_.now = kStart + 10'000 + i * 10 * kMillisecond;
    reader.poll(got_.sink());
  }
  EXPECT_TRUE(got_.items.empty());
  time_.now = kStart + 1100 * kMillisecond;
  reader.poll(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{5000}));
  // The writer wakes up: its record is late, but printed and counted.
  ASSERT_TRUE(stuck.build(kStart + 100, make_payload(0, 77, 0)));
  stuck.commit();
  stuck.give_back();
  time_.now += kMillisecond;
  reader.poll(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{5000, 100}));
  EXPECT_EQ(reader.counts().order_breaks, 1u);
}

TEST_F(ReaderTest, TakesARingBackFromADeadThread) {
  trace::ReaderOptions options = time_.options();
  std::vector<std::uint32_t> asked;
  options.thread_is_alive = [&](std::uint32_t tid) {
    asked.push_back(tid);
    return tid != 77;
  };
  Reader reader(area_, time_.clock, names_, options);
  ASSERT_TRUE(RingWriter(area_, 0).claim(77));
  ASSERT_TRUE(RingWriter(area_, 1).claim(78));
  reader.poll(got_.sink());
  time_.now += 10 * kMillisecond;
  reader.poll(got_.sink());
  EXPECT_TRUE(asked.empty()) << "a claim of a few milliseconds is nothing unusual";
  time_.now += 20 * kMillisecond;
  reader.poll(got_.sink());
  EXPECT_EQ(asked, (std::vector<std::uint32_t>{77, 78}));
  EXPECT_EQ(area_.ring(0).owner, 0u);
  EXPECT_EQ(area_.ring(1).owner, 78u);
  EXPECT_EQ(reader.counts().reclaimed_rings, 1u);
  reader.poll(got_.sink());
  EXPECT_EQ(asked.size(), 2u) << "not asked again at once";
  EXPECT_TRUE(write(0, 1)) << "the ring works again";
}

// Each new record is a new claim, though the thread is the same.
TEST_F(ReaderTest, ABusyWriterIsNotADeadOne) {
  trace::ReaderOptions options = time_.options();
  options.thread_is_alive = [](std::uint32_t) { return false; };
  Reader reader(area_, time_.clock, names_, options);
  for (std::uint64_t i = 0; i < 10; ++i) {
    RingWriter writer(area_, 0);
    ASSERT_TRUE(writer.claim(77));
    writer.stamp(time_.now);
    reader.poll(got_.sink());
    ASSERT_TRUE(writer.build(time_.now, make_payload(0, 77, i)));
    writer.commit();
    writer.give_back();
    time_.now += 50 * kMillisecond;
  }
  EXPECT_EQ(reader.counts().reclaimed_rings, 0u);
}

// Bytes that a killed writer left after the head are not a record, and the next writer overwrites them.
TEST_F(ReaderTest, AKilledWriterLeavesNothing) {
  trace::ReaderOptions options = time_.options();
  options.thread_is_alive = [](std::uint32_t) { return false; };
  Reader reader(area_, time_.clock, names_, options);
  write(0, 10, 1);
  RingWriter killed(area_, 0);
  ASSERT_TRUE(killed.claim(77));
  killed.stamp(kStart + 20);
  ASSERT_TRUE(killed.build(kStart + 20, make_payload(0, 77, 0xdead), 0, 5));
  for (int i = 0; i < 3; ++i) {
    reader.poll(got_.sink());
    time_.now += 30 * kMillisecond;
  }
  write(0, 30, 2);
  reader.finish(got_.sink());
  ASSERT_EQ(got_.items.size(), 2u);
  EXPECT_EQ(got_.items[0].payload, make_payload(0, 55, 1));
  EXPECT_EQ(got_.items[1].payload, make_payload(0, 55, 2));
  EXPECT_EQ(reader.counts().damaged + reader.counts().missing, 0u);
}

TEST_F(ReaderTest, AFullRingTakesNoMoreUntilItIsRead) {
  Reader reader = make_reader();
  std::uint64_t fits = 0;
  while (write(0, fits, fits)) ++fits;
  EXPECT_EQ(fits, 8192u / 48);
  time_.now += kMillisecond;
  reader.poll(got_.sink());
  EXPECT_EQ(got_.items.size(), fits);
  EXPECT_TRUE(write(0, fits, fits));
}

TEST_F(ReaderTest, RecordsOfTheLargestSizeFit) {
  Reader reader = make_reader();
  const std::vector<std::uint8_t> rest(shared::kMaxPayload - sizeof(PayloadHead), 0x5a);
  const std::vector<std::uint8_t> payload = make_payload(0, 1, rest);
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(RingWriter(area_, 0).write(kStart + i, payload));
    ASSERT_TRUE(write(0, i, 1));
    time_.now += kMillisecond;
    reader.poll(got_.sink());
  }
  ASSERT_EQ(got_.items.size(), 14u);
  EXPECT_EQ(got_.items[12].payload, payload);
  EXPECT_EQ(reader.counts().damaged, 0u);
}

class LargeReaderTest : public ReaderTest {
 protected:
  LargeReaderTest() : ReaderTest(1, 1 << 20) {}
};

// Larger than the pieces in which the reader copies, between small ones, over the ring's end.
TEST_F(LargeReaderTest, RecordsOfSixteenPieces) {
  Reader reader = make_reader();
  std::vector<std::vector<std::uint8_t>> written;
  std::uint64_t time = 0;
  for (int round = 0; round < 6; ++round) {
    for (const std::size_t bytes : {std::size_t{shared::kMostPayload}, std::size_t{8}, std::size_t{40000},
                                    std::size_t{131000}, std::size_t{32 << 10}, std::size_t{16}}) {
      const std::vector<std::uint8_t> rest(std::max(bytes, sizeof(PayloadHead) + 8) - sizeof(PayloadHead),
                                           static_cast<std::uint8_t>(time));
      written.push_back(make_payload(0, 1, rest));
      ASSERT_TRUE(RingWriter(area_, 0).write(kStart + ++time, written.back()));
    }
    time_.now += kMillisecond;
    reader.poll(got_.sink());
  }
  reader.finish(got_.sink());
  ASSERT_EQ(got_.items.size(), written.size());
  for (std::size_t i = 0; i < written.size(); ++i) EXPECT_TRUE(got_.items[i].payload == written[i]) << i;
  EXPECT_EQ(reader.counts().damaged, 0u);
}

TEST_F(LargeReaderTest, APayloadBeyondTheLimitIsDamaged) {
  Reader reader = make_reader();
  const std::vector<std::uint8_t> rest(shared::kMostPayload, 1);
  ASSERT_TRUE(RingWriter(area_, 0).write(kStart + 1, make_payload(0, 1, rest)));
  time_.now += kMillisecond;
  reader.poll(got_.sink());
  EXPECT_EQ(got_.items.size(), 0u);
  EXPECT_EQ(reader.counts().damaged, 1u);
}

TEST_F(ReaderTest, PositionsAndNumbersWrapAround) {
  shared::Ring& ring = area_.ring(0);
  ring.commit = std::uint64_t{0xffffff80} << 32 | 0xfffffff0;
  ring.tail = 0xffffff80;
  Reader reader = make_reader();
  for (std::uint64_t i = 0; i < 2000; ++i) {
    ASSERT_TRUE(write(0, i, i));
    if (i % 50 != 0) continue;
    time_.now += kMillisecond;
    reader.poll(got_.sink());
  }
  reader.finish(got_.sink());
  ASSERT_EQ(got_.items.size(), 2000u);
  for (std::uint64_t i = 0; i < 2000; ++i) ASSERT_EQ(got_.items[i].payload, make_payload(0, 55, i));
  EXPECT_LT(ring.tail, 0x80000000u);
  EXPECT_EQ(reader.counts().damaged + reader.counts().missing, 0u);
}

TEST_F(ReaderTest, StartsInARingThatIsInUse) {
  write(0, 1, 1);
  write(0, 2, 2);
  Reader reader = make_reader();
  write(0, 3, 3);
  reader.finish(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{1, 2, 3}));
  EXPECT_EQ(reader.counts().damaged + reader.counts().missing, 0u);
}

TEST_F(ReaderTest, AGapInTheNumbersIsCounted) {
  Reader reader = make_reader();
  write(0, 1);
  area_.ring(0).commit += 3;
  write(0, 2);
  reader.finish(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{1, 2}));
  EXPECT_EQ(reader.counts().missing, 3u);
  EXPECT_EQ(reader.counts().damaged, 0u);
}

// A record without a clock is as old as the one before it, or as the last time when the ring was free.
TEST_F(ReaderTest, RecordsWithoutAClockKeepTheirPlace) {
  Reader reader = make_reader();
  write(0, 5000);
  write(0, 0 - kStart, 0, shared::kRecordNoClock);
  write(1, 4000);
  write(1, 6000);
  time_.now = kStart + 100'000;
  reader.poll(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{4000, 5000, 5000, 6000}));
  EXPECT_EQ(got_.items[2].flags, shared::kRecordNoClock);
  write(0, 0 - kStart, 0, shared::kRecordNoClock);
  time_.now = kStart + 200'000;
  reader.poll(got_.sink());
  EXPECT_EQ(offsets(got_).back(), 100'000u);
  EXPECT_EQ(reader.counts().order_breaks + reader.counts().bad_stamps, 0u);
}

// The counters of two CPUs may be a few ticks apart: the output's times still never go back.
TEST_F(ReaderTest, SmallStepsBackWithinARingAreLevelled) {
  Reader reader = make_reader();
  write(0, 1000);
  write(0, 990);
  write(0, 1010);
  reader.finish(got_.sink());
  EXPECT_EQ(offsets(got_), (Times{1000, 1000, 1010}));
  EXPECT_EQ(reader.counts().bad_stamps, 0u);
}

// A section of a CPU ring is announced by its number and nothing else.
class CpuRingTest : public ReaderTest {
 protected:
  CpuRingTest() { area_ = make_area(2, 8192, {make_program(24), make_program(16)}, 1); }
  void begin_section() { area_.ring(0).begun = static_cast<std::uint32_t>(area_.ring(0).commit) + 1; }
  std::size_t handed_on_after(Reader& reader, std::uint64_t time) {
    time_.now += time;
    reader.poll(got_.sink());
    return got_.items.size();
  }
};

TEST_F(CpuRingTest, ASectionHoldsUpWhatIsYounger) {
  Reader reader = make_reader();
  begin_section();
  write(1, 10);
  EXPECT_TRUE(area_.is_being_written(0));
  EXPECT_EQ(handed_on_after(reader, kMillisecond), 0u);
  RingWriter writer(area_, 0);
  ASSERT_TRUE(writer.build(kStart + 5, make_payload(0, 55, 1)));
  writer.commit();
  EXPECT_FALSE(area_.is_being_written(0));
  EXPECT_EQ(handed_on_after(reader, kMillisecond), 2u);
  EXPECT_EQ(offsets(got_), (Times{5, 10}));
}

TEST_F(CpuRingTest, AnAbandonedSectionIsNotWaitedForLong) {
  Reader reader = make_reader();
  begin_section();
  write(1, 10);
  EXPECT_EQ(handed_on_after(reader, kMillisecond), 0u);
  EXPECT_EQ(handed_on_after(reader, 3 * kMillisecond), 0u);
  EXPECT_EQ(handed_on_after(reader, 3 * kMillisecond), 1u);
  EXPECT_EQ(reader.counts().reclaimed_rings, 0u);
}

TEST_F(CpuRingTest, AnOwnerMeansNothingThere) {
  Reader reader = make_reader();
  area_.ring(0).owner = 4711;
  write(1, 10);
  EXPECT_EQ(handed_on_after(reader, kMillisecond), 1u);
}

class CommTest : public ReaderTest {
 protected:
  // A u32 locator at 16, 4 other bytes, then 16 bytes for the name.
  CommTest() {
    program::EventProgram event = make_program(24);
    event.insns.insert(event.insns.begin(),
                       {.op = shared::Op::store_comm, .size = 0, .count = 0, .offset = 16, .immediate = 0});
    area_ = make_area(1, 8192, {event});
  }
  std::vector<std::uint8_t> send(std::uint32_t locator, std::uint16_t flags = shared::kRecordCommLater) {
    std::vector<std::uint8_t> rest(24, 0);
    std::memcpy(rest.data(), &locator, sizeof locator);
    Reader reader = make_reader();
    RingWriter(area_, 0).write(kStart, make_payload(0, 55, rest), flags);
    Collected got;
    reader.finish(got.sink());
    return got.items.at(0).payload;
  }
  static std::string text_at(const std::vector<std::uint8_t>& payload, std::size_t offset, std::size_t size) {
    return {payload.begin() + static_cast<std::ptrdiff_t>(offset),
            payload.begin() + static_cast<std::ptrdiff_t>(offset + size)};
  }
};

TEST_F(CommTest, IsFilledInWithItsNul) {
  names_.learn(55, "worker", 0);
  const std::string expected("worker\0\0\0\0\0\0\0\0\0\0", 16);
  EXPECT_EQ(text_at(send(16u << 16 | 24), 24, 16), expected);
  EXPECT_EQ(text_at(send(4u << 16 | 24), 24, 16), std::string("wor\0\0\0\0\0\0\0\0\0\0\0\0\0", 16));
}

TEST_F(CommTest, IsLeftAloneWithoutTheFlagOrWithABadLocator) {
  names_.learn(55, "worker", 0);
  const std::string zeros(16, '\0');
  EXPECT_EQ(text_at(send(16u << 16 | 24, 0), 24, 16), zeros);
  for (const std::uint32_t locator :
       {0u, 24u, 16u << 16, 16u << 16 | 23, 17u << 16 | 24, 16u << 16 | 25, 0xffffffffu}) {
    const std::vector<std::uint8_t> payload = send(locator);
    EXPECT_EQ(text_at(payload, 24, 16), zeros) << std::hex << locator;
    EXPECT_EQ(std::memcmp(payload.data() + 16, &locator, 4), 0);
  }
}

class SmallMemoryTest : public ReaderTest {
 protected:
  SmallMemoryTest() : ReaderTest(2, 1 << 20) {}
  Reader make_small_reader() {
    trace::ReaderOptions options = time_.options();
    options.pending_bytes = 0;  // the least that works: two records of the largest size per ring
    return Reader(area_, time_.clock, names_, options);
  }
};

TEST_F(SmallMemoryTest, OrderHoldsWhenARingIsTakenInParts) {
  Reader reader = make_small_reader();
  for (std::uint64_t i = 0; i < 20000; ++i) {
    ASSERT_TRUE(write(0, 2 * i));
    ASSERT_TRUE(write(1, 2 * i + 1));
  }
  time_.now += kMillisecond;
  reader.poll(got_.sink());
  ASSERT_EQ(got_.items.size(), 40000u);
  for (std::uint64_t i = 0; i < 40000; ++i) ASSERT_EQ(got_.items[i].ns, kStart + i);
  EXPECT_EQ(reader.counts().order_breaks + reader.counts().damaged + reader.counts().missing, 0u);
}

TEST_F(SmallMemoryTest, FinishTakesAllParts) {
  Reader reader = make_small_reader();
  for (std::uint64_t i = 0; i < 21000; ++i) ASSERT_TRUE(write(0, i));
  ASSERT_TRUE(write(1, 5));
  reader.finish(got_.sink());
  EXPECT_EQ(got_.items.size(), 21001u);
  EXPECT_TRUE(std::is_sorted(got_.items.begin(), got_.items.end(), [](auto& a, auto& b) { return a.ns < b.ns; }));
}

// Memory is full and a stopped writer holds everything up: the records are handed on, so that the target loses none, and the
// writer's own record comes late.
TEST_F(SmallMemoryTest, RoomComesBeforeOrder) {
  Reader reader = make_small_reader();
  RingWriter slow(area_, 1);
  ASSERT_TRUE(slow.claim(77));
  slow.stamp(kStart + 1);
  for (std::uint64_t i = 0; i < 20000; ++i) ASSERT_TRUE(write(0, 10 + i));
  time_.now += kMillisecond;
  reader.poll(got_.sink());
  EXPECT_GT(got_.items.size(), 400u);
  ASSERT_TRUE(slow.build(kStart + 1, make_payload(0, 77, 0)));
  slow.commit();
  slow.give_back();
  reader.finish(got_.sink());
  EXPECT_EQ(got_.items.size(), 20001u);
  EXPECT_EQ(reader.counts().order_breaks, 1u);
}

TEST_F(ReaderTest, PollIntervalFollowsTheFillLevel) {
  Reader reader = make_reader();
  EXPECT_EQ(reader.next_poll(), microseconds(1000));
  for (int i = 0; i < 3; ++i) reader.poll(got_.sink());
  EXPECT_EQ(reader.next_poll(), microseconds(8'000)) << "a short pause";
  for (int i = 0; i < 50; ++i) reader.poll(got_.sink());
  EXPECT_EQ(reader.next_poll(), microseconds(50'000)) << "nothing happens";
  write(0, 0);
  reader.poll(got_.sink());
  EXPECT_EQ(reader.next_poll(), microseconds(8'000)) << "it begins again";
  for (int i = 0; i < 170; ++i) write(0, i);
  reader.poll(got_.sink());
  EXPECT_LT(reader.next_poll(), microseconds(5'000)) << "the ring was full";
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 170; ++i) write(0, i);
    reader.poll(got_.sink());
  }
  EXPECT_EQ(reader.next_poll(), microseconds(1000));
}

class LargeRingTest : public ReaderTest {
 protected:
  LargeRingTest() : ReaderTest(1, 8u << 20) {}
};

TEST_F(LargeRingTest, OnePollHandsOnALimitedNumber) {
  Reader reader = make_reader();
  for (std::uint64_t i = 0; i < 100'000; ++i) ASSERT_TRUE(write(0, i));
  time_.now += kMillisecond;
  reader.poll(got_.sink());
  EXPECT_EQ(got_.items.size(), 65536u);
  EXPECT_EQ(reader.next_poll(), microseconds(0)) << "there is more";
  EXPECT_EQ(area_.ring(0).tail, area_.ring(0).commit >> 32) << "the target has its room already";
  reader.poll(got_.sink());
  EXPECT_EQ(got_.items.size(), 100'000u);
  EXPECT_GE(reader.next_poll(), microseconds(1000));
}

TEST_F(ReaderTest, NoEventsAndNothingRecorded) {
  Area area = make_area(1, 8192, {});
  Reader reader(area, time_.clock, names_, time_.options());
  reader.poll(got_.sink());
  reader.finish(got_.sink());
  EXPECT_TRUE(got_.items.empty());
}

}  // namespace
}  // namespace uprobe::test
