// SPDX-License-Identifier: MIT
// The reader against rings that a broken or hostile target wrote: it survives, counts, and goes on with the good records.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/shared/task_name.h"
#include "engine/trace/reader.h"
#include "tests/trace/ring_writer.h"

namespace uprobe::test {
namespace {

using trace::Reader;
using trace::TaskNames;

constexpr std::uint64_t kStart = 1'000'000'000;
constexpr std::uint32_t kRecordBytes = 48;  // of the records that are written here

// Ring 0 has three good records before `harm` changes it.
struct Case {
  std::string name;
  std::function<void(shared::Ring&, std::uint8_t* data)> harm;
  std::size_t handed_on;  // of the three
  std::uint64_t damaged = 0;
  std::uint64_t missing = 0;
  std::uint64_t bad_stamps = 0;
};

RecordHead* head_of(std::uint8_t* data, std::uint32_t index) {
  return reinterpret_cast<RecordHead*>(data + index * kRecordBytes);
}
PayloadHead* payload_of(std::uint8_t* data, std::uint32_t index) {
  return reinterpret_cast<PayloadHead*>(data + index * kRecordBytes + sizeof(RecordHead));
}

Case with_length(std::uint32_t length) {
  return {"length " + std::to_string(length), [=](auto&, auto* data) { head_of(data, 1)->length = length; }, 1, 2};
}
Case with_payload_bytes(std::uint32_t bytes) {
  return {"payload of " + std::to_string(bytes), [=](auto&, auto* data) { head_of(data, 1)->payload_bytes = bytes; }, 1,
          2};
}
// The head `units` of 8 bytes away from where it is.
Case with_head_moved(std::uint32_t units, std::size_t handed_on, std::uint64_t damaged) {
  return {"head moved by " + std::to_string(units),
          [=](shared::Ring& ring, auto*) { ring.commit += std::uint64_t{units} << 32; }, handed_on, damaged};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::uint32_t length :
       {0u, 1u, 8u, 24u, 32u, 47u, 49u, 4097u, 4104u, 8192u, 0x80000000u, 0xfffffff8u, ~0u})
    all.push_back(with_length(length));
  for (const std::uint32_t bytes : {0u, 8u, 15u, 25u, 4072u, 0xfffffff0u, ~0u})
    all.push_back(with_payload_bytes(bytes));
  all.push_back(with_head_moved(0u - 19, 0, 3));     // before the tail
  all.push_back(with_head_moved(0x40000000, 0, 3));  // far beyond the ring
  all.push_back(with_head_moved(0u - 1, 2, 1));      // inside the last record
  all.push_back(with_head_moved(1, 3, 1));           // after it: no record follows
  all.push_back(with_head_moved(0u - 18, 0, 1));     // nothing there, though three were counted
  all.push_back({"count too high", [](auto& ring, auto*) { ring.commit += 5; }, 3, 1});
  all.push_back({"count too low", [](auto& ring, auto*) { ring.commit -= 1; }, 3, 1});
  all.push_back({"payload below the event's", [](auto&, auto* data) { head_of(data, 1)->payload_bytes = 23; }, 2, 1});
  all.push_back({"unknown event", [](auto&, auto* data) { payload_of(data, 1)->type = 2; }, 2, 1});
  all.push_back({"event 65535", [](auto&, auto* data) { payload_of(data, 0)->type = 65535; }, 2, 1});
  all.push_back({"number ahead", [](auto&, auto* data) { head_of(data, 2)->number = 7; }, 3, 1, 5});
  all.push_back({"number in the past", [](auto&, auto* data) { head_of(data, 1)->number = 0; }, 3, 1, 1});
  all.push_back({"stamp from the future", [](auto&, auto* data) { head_of(data, 1)->tsc = ~0ull; }, 3, 0, 0, 1});
  all.push_back({"stamp from the past", [](auto&, auto* data) { head_of(data, 1)->tsc = 1; }, 3, 0, 0, 1});
  all.push_back({"owner is unknown", [](auto& ring, auto*) { ring.owner = ~0u; }, 3});
  all.push_back({"stamp under way", [](auto& ring, auto*) { ring.owner = 5, ring.stamp = ~0ull; }, 3});
  all.push_back({"tail moved by the target", [](auto& ring, auto*) { ring.tail = 0xdeadbeef; }, 3});
  all.push_back(
      {"all flags", [](auto&, auto* data) { head_of(data, 1)->flags = 0xffff; }, 2, 1});  // no name has 24 bytes
  all.push_back({"all flags but the name's",
                 [](auto&, auto* data) { head_of(data, 1)->flags = 0xffffu & ~unsigned{shared::kRecordTaskName}; }, 3});
  all.push_back({"negative thread", [](auto&, auto* data) { payload_of(data, 1)->pid = -5; }, 3});
  all.push_back({"all ones", [](auto&, auto* data) { std::memset(data, 0xff, 8192); }, 0, 3});
  all.push_back({"all zeros", [](auto&, auto* data) { std::memset(data, 0, 8192); }, 0, 3});
  return all;
}

class HostileTest : public testing::Test {
 protected:
  HostileTest() : area_(make_area(2, 8192, {make_program(24), make_program(24)})), names_("/nonexistent") {}

  void write(std::uint32_t ring, std::uint64_t offset) {
    ASSERT_TRUE(RingWriter(area_, ring).write(kStart + offset, make_payload(0, 55, offset)));
  }

  Area area_;
  FakeTime time_;
  TaskNames names_;
  Collected got_;
};

TEST_F(HostileTest, DamageIsCountedAndTheRingGoesOn) {
  for (const Case& hostile : cases()) {
    SCOPED_TRACE(hostile.name);
    area_ = make_area(2, 8192, {make_program(24), make_program(24)});
    time_ = {};
    Reader reader(area_, time_.clock, names_, time_.options());
    got_ = {};
    for (const std::uint64_t offset : {10, 20, 30}) write(0, offset);
    write(1, 25);
    hostile.harm(area_.ring(0), area_.data(0));
    for (int i = 0; i < 3; ++i, time_.now += 2'000'000'000) reader.poll(got_.sink());
    EXPECT_EQ(got_.items.size(), hostile.handed_on + 1);
    EXPECT_EQ(reader.counts().damaged, hostile.damaged);
    EXPECT_EQ(reader.counts().missing, hostile.missing);
    EXPECT_EQ(reader.counts().bad_stamps, hostile.bad_stamps);
    EXPECT_EQ(reader.counts().recorded[0], got_.items.size());

    // Resynchronised: later records are good again.
    area_.ring(0).owner = 0;
    area_.ring(0).tail = static_cast<std::uint32_t>(area_.ring(0).commit >> 32);
    const std::size_t before = got_.items.size();
    write(0, 40);
    reader.finish(got_.sink());
    EXPECT_EQ(got_.items.size(), before + 1);
  }
}

TEST_F(HostileTest, AFarStampDoesNotPushOutTheOthers) {
  Reader reader(area_, time_.clock, names_, time_.options());
  write(0, 10);
  head_of(area_.data(0), 0)->tsc = std::numeric_limits<std::uint64_t>::max();
  write(0, 20);
  write(1, 15);
  time_.now += 1'000'000;
  reader.poll(got_.sink());
  ASSERT_EQ(got_.items.size(), 3u);
  EXPECT_LE(got_.items.back().ns, time_.now);
}

// A target that rewrites the ring's words all the time keeps the reader busy, but not for ever.
TEST_F(HostileTest, FinishEndsThoughTheTargetGoesOn) {
  Reader reader(area_, time_.clock, names_, time_.options());
  std::uint64_t records = 0;
  reader.finish([&](const trace::EventRecord&) { ++records; });
  write(0, 1);
  reader.finish([&](const trace::EventRecord&) {
    ++records;
    write(0, 1);
    area_.ring(1).commit += std::uint64_t{1} << 32;
  });
  EXPECT_GE(records, 1u);
  EXPECT_LT(records, 1000u);
}

// Nonsense of every kind, many times over: the reader ends, stays inside, and its counts add up.
TEST_F(HostileTest, SurvivesNoise) {
  std::mt19937_64 random(7);
  const std::vector<std::uint32_t> lengths = {0, 24, 40, 48, 4096, 4104, 8184, 8192};
  for (int round = 0; round < 2000; ++round) {
    Reader reader(area_, time_.clock, names_, time_.options());
    for (int step = 0; step < 8; ++step) {
      const auto index = static_cast<std::uint32_t>(random() % 2);
      shared::Ring& ring = area_.ring(index);
      std::uint8_t* data = area_.data(index);
      const std::uint64_t at = random() % 1024 * 8;
      RecordHead head{.length = lengths[random() % lengths.size()],
                      .number = static_cast<std::uint32_t>(random() % 4),
                      .tsc = random() % 2 == 0 ? random() : kStart,
                      .payload_bytes = static_cast<std::uint32_t>(random() % 4200),
                      .cpu = 0,
                      .flags = static_cast<std::uint16_t>(random())};
      std::memcpy(data + at, &head, sizeof head);
      ring.commit = random() % 4 == 0 ? random() : ring.commit + ((random() % 1024) << 32 | random() % 8);
      ring.owner = static_cast<std::uint32_t>(random() % 3);
      ring.stamp = random();
      time_.now += random() % 1'000'000'000;
      reader.poll(got_.sink());
    }
    reader.finish(got_.sink());
    std::uint64_t recorded = 0;
    for (const std::uint64_t count : reader.counts().recorded) recorded += count;
    ASSERT_EQ(recorded, got_.items.size());
    got_.items.clear();
  }
}

}  // namespace
}  // namespace uprobe::test
