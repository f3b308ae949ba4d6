// SPDX-License-Identifier: MIT
// The public header's reading of a ring, against the tests' writer: what it takes and what it counts as lost is what was written.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "engine/rings/ring_abi.h"
#include "tests/trace/ring_writer.h"

namespace uprobe::test {
namespace {

constexpr std::uint64_t kRingBytes = 256 << 10;

uprobe_ring_session session_of(Area& area) {
  const Area::Places places = area.places();
  uprobe_ring_session session{};
  session.ring_count = area.ring_count();
  session.ring_bytes = area.ring_bytes();
  session.record_most = rings::record_most(area.ring_bytes(), places.payload_limit);
  session.file_bytes = places.data - places.live + area.ring_bytes() * area.ring_count();
  session.rings_offset = places.rings - places.live, session.data_offset = places.data - places.live;
  return session;
}

class RingsTake : public ::testing::Test {
 protected:
  // The first ring as a part's file has it: the data once.
  RingsTake() : area_(make_area(1, kRingBytes, {make_program(24)})), writer_(area_, 0) {
    const uprobe_ring_session session = session_of(area_);
    const auto* const part = reinterpret_cast<const std::uint8_t*>(&area_.live(0).header());
    EXPECT_EQ(uprobe_ring_begin(&reader_, part, &session, 0), 1);
    EXPECT_EQ(reinterpret_cast<const shared::Ring*>(reader_.ring), &area_.ring(0));
    EXPECT_EQ(reader_.data, area_.data(0));
    copy_.resize(reader_.record_most + kRingBytes);
  }

  // A record whose size depends on its number; the tool's reader is always at the end.
  void write(std::uint64_t number) {
    std::vector<std::uint8_t> rest(8 + number % 7 * 8);
    for (std::size_t i = 0; i < rest.size(); i += 8) std::memcpy(rest.data() + i, &number, sizeof number);
    ASSERT_TRUE(writer_.write(number, make_payload(0, 1u, rest)));
    std::atomic_ref(area_.ring(0).tail).store(static_cast<std::uint32_t>(area_.ring(0).commit >> 32));
  }

  // Checks each record that there is: its number is in all of its bytes.
  std::size_t take(std::size_t room = 0) {
    const std::size_t bytes = uprobe_ring_take(&reader_, copy_.data(), room == 0 ? copy_.size() : room);
    for (std::size_t at = 0; at < bytes;) {
      uprobe_ring_record head;
      std::memcpy(&head, copy_.data() + at, sizeof head);
      for (std::size_t i = sizeof head + sizeof(PayloadHead); i + 8 <= sizeof head + head.payload_bytes; i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, copy_.data() + at + i, sizeof word);
        if (word != head.tsc) ++torn_;
      }
      if (head.number != static_cast<std::uint32_t>(head.tsc)) ++torn_;
      at += head.length;
    }
    return bytes;
  }

  Area area_;
  RingWriter writer_;
  uprobe_ring_reader reader_;
  std::vector<std::uint8_t> copy_;
  std::uint64_t torn_ = 0;
};

TEST_F(RingsTake, TakesAllThatComesInTurn) {
  EXPECT_EQ(take(), 0u);
  for (std::uint64_t number = 0; number < 5000; ++number) {
    write(number);
    if (number % 20 != 0) continue;
    EXPECT_NE(take(), 0u);
  }
  take();
  EXPECT_EQ(reader_.taken, 5000u);
  EXPECT_EQ(reader_.lost + reader_.broken + torn_, 0u);
  EXPECT_EQ(take(), 0u);
}

TEST_F(RingsTake, LeavesARecordThatTheRoomCutsForTheNextTime) {
  for (std::uint64_t number = 0; number < 30; ++number) write(number);
  while (take(reader_.record_most) != 0) continue;
  uprobe_ring_reader little = reader_;
  EXPECT_EQ(little.taken, 30u);
  for (std::uint64_t number = 30; number < 60; ++number) write(number);
  std::size_t rounds = 0;
  for (; take(200) != 0; ++rounds) continue;
  EXPECT_GT(rounds, 5u);
  EXPECT_EQ(reader_.taken, 60u);
  EXPECT_EQ(reader_.broken, 0u);
}

TEST_F(RingsTake, CountsWhatWasOverwritten) {
  for (std::uint64_t number = 0; number < 6000; ++number) write(number);
  EXPECT_EQ(take(), 0u);
  EXPECT_EQ(reader_.lost, 6000u);
  write(6000);
  EXPECT_NE(take(), 0u);
  EXPECT_EQ(reader_.taken, 1u);
  EXPECT_EQ(reader_.broken, 0u);
}

// The bytes that a writer may be changing are those up to the largest record after the commit.
TEST_F(RingsTake, IsBehindByARingWithoutALargestRecordAtMost) {
  std::uint64_t number = 0;
  while ((area_.ring(0).commit >> 32) * 8 <= kRingBytes - reader_.record_most - 96) write(number++);
  uprobe_ring_reader early = reader_;
  EXPECT_NE(uprobe_ring_take(&early, copy_.data(), copy_.size()), 0u);
  EXPECT_EQ(early.lost, 0u);
  while ((area_.ring(0).commit >> 32) * 8 <= kRingBytes - reader_.record_most) write(number++);
  EXPECT_EQ(take(), 0u);
  EXPECT_EQ(reader_.lost, number);
}

// No writer goes beyond the tail of the tool's reader.
TEST_F(RingsTake, ReadsAWholeRingThatTheToolHasNotRead) {
  std::uint64_t number = 0;
  while (writer_.write(number, make_payload(0, 1u, number))) ++number;
  EXPECT_GT((area_.ring(0).commit >> 32) * 8, kRingBytes - 64);
  EXPECT_NE(take(), 0u);
  EXPECT_EQ(reader_.taken, number);
  EXPECT_EQ(reader_.lost, 0u);
}

TEST_F(RingsTake, TakesOrCountsEachRecordOfAWriterAtFullSpeed) {
  constexpr std::uint64_t kRecords = 300'000;
  std::atomic<bool> has_begun = false;
  std::thread other([&] {
    write(0);
    has_begun.wait(false);
    for (std::uint64_t number = 1; number < kRecords; ++number) write(number);
  });
  while (reader_.taken == 0) take();
  has_begun = true;
  has_begun.notify_one();
  while (reader_.taken + reader_.lost < kRecords) take();
  other.join();
  EXPECT_EQ(reader_.taken + reader_.lost, kRecords);
  EXPECT_EQ(reader_.broken, 0u);
  EXPECT_EQ(torn_, 0u);
}

TEST_F(RingsTake, GoesOnAtTheEndWhereTheRingMakesNoSense) {
  for (std::uint64_t number = 0; number < 10; ++number) write(number);
  const std::uint32_t wrong = 13;
  std::memcpy(area_.data(0), &wrong, sizeof wrong);  // the first record's length
  EXPECT_EQ(take(), 0u);
  EXPECT_EQ(reader_.broken, 1u);
  EXPECT_EQ(reader_.lost, 10u);
  write(10);
  EXPECT_NE(take(), 0u);
  EXPECT_EQ(reader_.taken, 1u);
}

TEST_F(RingsTake, RefusesARecordThatReachesBeyondTheCommit) {
  for (std::uint64_t number = 0; number < 10; ++number) write(number);
  const std::uint32_t wrong = 4096;
  std::memcpy(area_.data(0), &wrong, sizeof wrong);
  EXPECT_EQ(take(), 0u);
  EXPECT_EQ(reader_.lost, 10u);
}

// Whatever a process writes, the copy stays inside of its buffer, and the walk inside of the copy.
TEST_F(RingsTake, StaysInsideWhateverIsThere) {
  std::mt19937_64 random(7);
  std::vector<std::uint8_t> exact(reader_.record_most);
  for (int round = 0; round < 3000; ++round) {
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t word = random() % 3 == 0 ? random() : random() % 5000;
      std::memcpy(area_.data(0) + random() % (kRingBytes / 8) * 8, &word, sizeof word);
    }
    const bool is_wild = random() % 4 == 0;
    const std::uint64_t step = random() % 512, records = random() % 4;
    const std::uint64_t position = is_wild ? random() : (reader_.position + step) & 0xffffffff;
    std::atomic_ref(area_.ring(0).commit).store(position << 32 | ((reader_.number + records) & 0xffffffff));
    EXPECT_LE(uprobe_ring_take(&reader_, exact.data(), exact.size()), exact.size());
  }
}

TEST(RingsBegin, RefusesAGeometryThatMakesNoSense) {
  Area area = make_area(2, kRingBytes, {make_program(24)});
  const auto* const part = reinterpret_cast<const std::uint8_t*>(&area.live(0).header());
  const uprobe_ring_session good = session_of(area);
  uprobe_ring_reader reader;
  EXPECT_EQ(uprobe_ring_begin(&reader, part, &good, 1), 1);
  EXPECT_EQ(uprobe_ring_begin(&reader, part, &good, 2), 0);
  const auto is_refused = [&](auto change) {
    uprobe_ring_session bad = good;
    change(bad);
    return uprobe_ring_begin(&reader, part, &bad, 0) == 0;
  };
  EXPECT_TRUE(is_refused([](auto& bad) { bad.ring_bytes = 12345; }));
  EXPECT_TRUE(is_refused([](auto& bad) { bad.ring_bytes = 0; }));
  EXPECT_TRUE(is_refused([](auto& bad) { bad.record_most = static_cast<std::uint32_t>(bad.ring_bytes); }));
  EXPECT_TRUE(is_refused([](auto& bad) { bad.file_bytes -= 8; }));
  EXPECT_TRUE(is_refused([](auto& bad) { bad.data_offset += 4096; }));
  EXPECT_TRUE(is_refused([](auto& bad) { bad.rings_offset = bad.file_bytes; }));
}

}  // namespace
}  // namespace uprobe::test
