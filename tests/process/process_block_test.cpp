// SPDX-License-Identifier: MIT
// The process block from the tool's side: the tool reads its own writes back, in an order that suits a running agent, and does
// not trust a target's changes.
#include <gtest/gtest.h>

#include <random>

#include "engine/process/block.h"
#include "engine/process/block_check.h"
#include "tests/arm/fake_target.h"

namespace uprobe::test {
namespace {

using control::Block;
using control::NewPoint;
using shared::ProcessBlock;

constexpr Addr kAt{0x10000000};

NewPoint make_point(Block& block, std::uint64_t address, std::size_t events = 1) {
  NewPoint point;
  point.address = Addr{address};
  point.copy = Addr{address + 0x1000};
  point.copy_bytes = 9;
  point.file_bias = 0x5000;
  point.insn = {0x48, 0x89, 0xe5};
  std::vector<shared::Consumer> consumers;
  for (std::size_t i = 0; i < events; ++i)
    consumers.push_back({.session = 0, .event = static_cast<std::uint16_t>(i), .next = 0});
  const auto list = block.list_for(consumers, false);
  point.consumers = list ? *list : 0;
  return point;
}

class BlockTest : public testing::Test {
 protected:
  void SetUp() override { target_.map_anonymous(kAt, Block::bytes_for({10})); }
  Block make() { return Block::create(target_, kAt, {10}).take(); }
  // The point that the agent would find for an address, or null.
  std::optional<shared::Point> agent_finds(std::uint64_t address) {
    const auto head = target_.get<ProcessBlock>(kAt);
    std::uint32_t slot = shared::hash_slot(address, head.hash_bits);
    for (;; slot = (slot + 1) & ((1u << head.hash_bits) - 1)) {
      const auto entry = target_.get<std::uint32_t>(kAt + head.hash_offset + 4ull * slot);
      if (entry == 0) return std::nullopt;
      const auto point = target_.get<shared::Point>(kAt + head.point_offset + sizeof(shared::Point) * (entry - 1ull));
      if (point.address == address) return point;
    }
  }
  std::vector<std::uint16_t> events_of(const shared::Point& point) {
    const auto head = target_.get<ProcessBlock>(kAt);
    std::vector<std::uint16_t> events;
    for (std::uint32_t next = point.consumer; next != 0 && events.size() < 100;) {
      const auto consumer =
          target_.get<shared::Consumer>(kAt + head.consumer_offset + sizeof(shared::Consumer) * (next - 1ull));
      events.push_back(consumer.event);
      next = consumer.next;
    }
    return events;
  }

  FakeTarget target_;
};

TEST_F(BlockTest, WhatIsAddedIsThereForTheAgentAndForALaterTool) {
  Block block = make();
  ASSERT_TRUE(block.add(target_, {make_point(block, 0x400000, 3), make_point(block, 0x400010, 0)}));
  ASSERT_TRUE(block.add(target_, {make_point(block, 0x400020)}));
  const auto first = agent_finds(0x400000);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->copy, 0x401000U);
  EXPECT_EQ(first->insn_bytes, 3);
  EXPECT_EQ(events_of(*first), (std::vector<std::uint16_t>{0, 1, 2}));
  ASSERT_TRUE(agent_finds(0x400010));
  EXPECT_EQ(agent_finds(0x400010)->consumer, 0U);
  EXPECT_FALSE(agent_finds(0x400001));

  auto again = Block::read(target_, kAt);
  ASSERT_TRUE(again) << again.error().text;
  EXPECT_EQ(again->points().size(), 3U);
  EXPECT_EQ(again->find(Addr{0x400020}), 2U);
  EXPECT_EQ(again->find(Addr{0x400021}), std::nullopt);
  EXPECT_EQ(again->undo()[0].address, 0x400000U);
  EXPECT_EQ(again->undo()[0].length, 1U);
  EXPECT_EQ(again->undo()[0].state, 1U);
  EXPECT_EQ(again->undo()[0].original[0], 0x48);
  ASSERT_TRUE(again->add(target_, {make_point(*again, 0x400030)}));
  EXPECT_TRUE(agent_finds(0x400030));
  EXPECT_TRUE(agent_finds(0x400000));
}

// An agent that looks at any moment finds a whole point or none.
TEST_F(BlockTest, TheHashIsWrittenLast) {
  Block block = make();
  bool hash_seen = false;
  const ProcessBlock head = block.head();
  target_.on_write = [&](const FakeTarget::Write& write) {
    const std::uint64_t place = write.at - kAt;
    const bool is_hash = place >= head.hash_offset && place < head.block_bytes;
    EXPECT_FALSE(hash_seen && !is_hash) << "written after the hash: " << std::hex << place;
    hash_seen = hash_seen || is_hash;
    EXPECT_EQ(agent_finds(0x400000).has_value(), false);
  };
  ASSERT_TRUE(block.add(target_, {make_point(block, 0x400000, 2)}));
  EXPECT_TRUE(hash_seen);
}

TEST_F(BlockTest, ManyPointsAtOnce) {
  Block block = make();
  std::vector<NewPoint> points;
  for (std::uint64_t i = 0; block.has_room(points.size() + 1); ++i) points.push_back(make_point(block, 0x400000 + i));
  ASSERT_GE(points.size(), 10U);
  const std::size_t count = points.size();
  ASSERT_TRUE(block.add(target_, std::move(points)));
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto point = agent_finds(0x400000 + i);
    ASSERT_TRUE(point) << i;
    EXPECT_EQ(point->address, 0x400000 + i);
  }
  EXPECT_FALSE(block.has_room(1));
  for (const auto& write : target_.writes) EXPECT_LE(write.at - kAt + write.bytes.size(), Block::bytes_for({10}));
}

TEST_F(BlockTest, StatesAndCopiesChangeInPlace) {
  Block block = make();
  ASSERT_TRUE(block.add(target_, {make_point(block, 0x400000)}));
  ASSERT_TRUE(block.set_state(target_, 0, shared::PointState::disarmed));
  EXPECT_EQ(Block::read(target_, kAt)->undo()[0].state, 0U);
  ASSERT_TRUE(agent_finds(0x400000)) << "a thread that has trapped already still finds its copy";
  NewPoint other = make_point(block, 0x400000);
  other.copy = Addr{0x777000};
  other.insn = {0x90};
  ASSERT_TRUE(block.set_point(target_, 0, other));
  EXPECT_EQ(agent_finds(0x400000)->copy, 0x777000U);
  EXPECT_EQ(Block::read(target_, kAt)->undo()[0].state, 1U);
  EXPECT_EQ(Block::read(target_, kAt)->undo()[0].original[0], 0x90);
}

// A process may report a mapping that ends before it begins.
TEST_F(BlockTest, PointsAreThoseOfARange) {
  Block block = make();
  ASSERT_TRUE(
      block.add(target_, {make_point(block, 0x401000), make_point(block, 0x402000), make_point(block, 0x403000)}));
  EXPECT_EQ(block.points_in(Addr{0x401001}, Addr{0x403000}), std::vector<std::uint32_t>{1});
  EXPECT_EQ(block.points_in(Addr{0}, Addr{~std::uint64_t{0}}), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_TRUE(block.points_in(Addr{0x403000}, Addr{0x401000}).empty());
  EXPECT_TRUE(block.points_in(Addr{~std::uint64_t{0}}, Addr{0}).empty());
}

TEST_F(BlockTest, APointOfOursGetsConsumersOnce) {
  Block block = make();
  ASSERT_TRUE(block.add(target_, {make_point(block, 0x400000, 0)}));
  const std::vector<shared::Consumer> two = {{.session = 0, .event = 8, .next = 0},
                                             {.session = 0, .event = 4, .next = 0}};
  ASSERT_TRUE(block.want(target_, 0, two));
  ASSERT_TRUE(block.want(target_, 0, two));
  EXPECT_EQ(events_of(*agent_finds(0x400000)), (std::vector<std::uint16_t>{8, 4}));
  ASSERT_TRUE(block.want(target_, 0, {{.session = 0, .event = 6, .next = 0}}));
  EXPECT_EQ(events_of(*agent_finds(0x400000)), (std::vector<std::uint16_t>{8, 6, 4})) << "an IFUNC that chose it later";
}

// Each field of the head with impossible values.
TEST_F(BlockTest, HeadsThatMakeNoSenseAreRefused) {
  Block block = make();
  ASSERT_TRUE(block.add(target_, {make_point(block, 0x400000)}));
  block.head().islands[0] = {0x20000000, 65536, 64};
  block.head().island_count = 1;
  ASSERT_TRUE(block.write_head(target_));
  const auto good = target_.get<ProcessBlock>(kAt);
  const auto refused = [&](const char* what, auto change) {
    ProcessBlock bad = good;
    change(bad);
    ASSERT_TRUE(target_.write(kAt, &bad, sizeof bad));
    const auto block_read = Block::read(target_, kAt);
    EXPECT_FALSE(block_read) << what;
  };
  refused("magic", [](ProcessBlock& b) { b.magic ^= 1; });
  refused("version", [](ProcessBlock& b) { b.abi_version += 1; });
  refused("bytes", [](ProcessBlock& b) { b.block_bytes = 4096; });
  refused("huge", [](ProcessBlock& b) { b.block_bytes = ~0u; });
  refused("points", [](ProcessBlock& b) { b.point_count = b.undo_count = b.point_capacity + 1; });
  refused("undo", [](ProcessBlock& b) { b.undo_count = 0; });
  refused("consumers", [](ProcessBlock& b) { b.consumer_count = b.consumer_capacity + 1; });
  refused("capacity", [](ProcessBlock& b) { b.point_capacity = 1u << 30; });
  refused("point offset", [](ProcessBlock& b) { b.point_offset = 0; });
  refused("consumer offset", [](ProcessBlock& b) { b.consumer_offset = b.block_bytes - 8; });
  refused("undo offset", [](ProcessBlock& b) { b.undo_offset = ~0u; });
  refused("hash offset", [](ProcessBlock& b) { b.hash_offset = b.block_bytes; });
  refused("no hash", [](ProcessBlock& b) { b.hash_bits = 0; });
  refused("hash bits", [](ProcessBlock& b) { b.hash_bits = 40; });
  refused("a hash smaller than the points", [](ProcessBlock& b) { b.hash_bits = 4; });
  refused("islands", [](ProcessBlock& b) { b.island_count = shared::kMaxIslands + 1; });
  refused("sessions", [](ProcessBlock& b) { b.session_count = shared::kMaxSessions + 1; });
  refused("an island that is more than full", [](ProcessBlock& b) { b.islands[0].used = b.islands[0].bytes + 16; });
  ASSERT_TRUE(target_.write(kAt, &good, sizeof good));
  EXPECT_TRUE(Block::read(target_, kAt));
}

// The tool would use each of these numbers as a length, an index or an address.
TEST_F(BlockTest, ATargetThatLiesInItsTablesIsRefused) {
  Block block = make();
  ASSERT_TRUE(block.add(target_, {make_point(block, 0x400000, 3), make_point(block, 0x400010)}));
  ASSERT_TRUE(block.note_code(target_, {0x400000, 0x401000, 0}));
  const auto head = target_.get<ProcessBlock>(kAt);
  const auto refused = [&]<class T>(const char* what, std::uint32_t table, void (*spoil)(T&)) {
    const T good = target_.get<T>(kAt + table);
    T bad = good;
    spoil(bad);
    EXPECT_TRUE(target_.write(kAt + table, &bad, sizeof bad));
    EXPECT_FALSE(Block::read(target_, kAt)) << what;
    EXPECT_TRUE(target_.write(kAt + table, &good, sizeof good));
  };
  using shared::CodeFile, shared::Consumer, shared::Point, shared::Undo;
  refused(
      "following_bytes", head.point_offset, +[](Point& p) { p.following_bytes = 16; });
  refused(
      "insn_bytes", head.point_offset, +[](Point& p) { p.insn_bytes = 17; });
  refused(
      "jump_bytes", head.point_offset, +[](Point& p) { p.jump_bytes = 200, p.jump_to = 0x500000; });
  refused(
      "a jump to nowhere", head.point_offset, +[](Point& p) { p.jump_bytes = 5; });
  refused(
      "copy_bytes", head.point_offset, +[](Point& p) { p.copy_bytes = ~0U; });
  refused(
      "prefix_window", head.point_offset, +[](Point& p) { p.prefix_window = 5; });
  refused(
      "copy below its slot", head.point_offset, +[](Point& p) { p.copy = 1; });
  refused(
      "copy in the kernel", head.point_offset, +[](Point& p) { p.copy = ~0ULL; });
  refused(
      "address in the kernel", head.point_offset, +[](Point& p) { p.address = 1ULL << 63; });
  refused(
      "state", head.point_offset, +[](Point& p) { p.state = 9; });
  refused(
      "role", head.point_offset, +[](Point& p) { p.role = 99; });
  refused(
      "consumer", head.point_offset, +[](Point& p) { p.consumer = 1000; });
  refused(
      "undo length", head.undo_offset, +[](Undo& u) { u.length = 17; });
  refused(
      "undo state", head.undo_offset, +[](Undo& u) { u.state = 2; });
  refused(
      "undo address", head.undo_offset, +[](Undo& u) { u.address += 1; });
  refused(
      "session", head.consumer_offset, +[](Consumer& c) { c.session = 200; });
  refused(
      "kind", head.consumer_offset, +[](Consumer& c) { c.kind = 77; });
  refused(
      "next", head.consumer_offset, +[](Consumer& c) { c.next = 1000; });
  refused(
      "a list that never ends", head.consumer_offset, +[](Consumer& c) { c.next = 1; });
  refused(
      "a file of code", head.code_file_offset, +[](CodeFile& f) { f.end = ~0ULL; });
  refused(
      "the number of islands", offsetof(ProcessBlock, island_count), +[](std::uint32_t& n) { n = 1; });
  EXPECT_TRUE(Block::read(target_, kAt));
}

// A short list for each of many points is a short table, and a long walk.
TEST_F(BlockTest, ListsThatAreLongForManyPointsAreRefused) {
  std::vector<shared::Point> points(5000, shared::Point{});
  std::vector<shared::Consumer> consumers(5000, shared::Consumer{});
  std::vector<shared::Undo> undo(5000, shared::Undo{});
  ProcessBlock head{};
  for (std::uint32_t i = 0; i < 5000; ++i) {
    points[i].address = undo[i].address = 0x400000 + 16 * i;
    points[i].state = 1;
    points[i].consumer = 5000;
    consumers[i].next = i;
  }
  head.point_count = head.consumer_count = 5000;
  const control::BlockTables tables{points, undo, consumers, {}, {}};
  EXPECT_FALSE(control::check_tables(head, tables));
  for (shared::Point& point : points) point.consumer = 1;
  EXPECT_TRUE(control::check_tables(head, tables));
}

// The target fills the hash: adding must come to an end nevertheless.
TEST_F(BlockTest, AFullHashIsRefused) {
  Block block = make();
  const ProcessBlock head = block.head();
  const std::vector<std::uint32_t> full(std::size_t{1} << head.hash_bits, 1);
  ASSERT_TRUE(target_.write(kAt + head.hash_offset, full.data(), full.size() * 4));
  auto read = Block::read(target_, kAt);
  EXPECT_FALSE(read && read->add(target_, {make_point(*read, 0x400000)}));
}

// Random words in the head: refused, or used without an access outside the block.
TEST_F(BlockTest, RandomHeads) {
  Block block = make();
  ASSERT_TRUE(block.add(target_, {make_point(block, 0x400000)}));
  const auto good = target_.get<ProcessBlock>(kAt);
  std::mt19937_64 random(3);
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    ProcessBlock bad = good;
    for (int n = 0; n < 2; ++n) {
      const std::uint32_t value =
          random() % 2 == 0 ? static_cast<std::uint32_t>(random() % 4096) : static_cast<std::uint32_t>(random());
      std::memcpy(reinterpret_cast<char*>(&bad) + random() % 24 * 4, &value, sizeof value);
    }
    ASSERT_TRUE(target_.write(kAt, &bad, sizeof bad));
    target_.writes.clear();
    if (auto read = Block::read(target_, kAt); read && read->has_room(1)) {
      ++accepted;
      static_cast<void>(read->add(target_, {make_point(*read, 0x400000 + 16 * static_cast<std::uint64_t>(round))}));
      for (const auto& write : target_.writes) EXPECT_LE(write.at - kAt + write.bytes.size(), Block::bytes_for({10}));
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST_F(BlockTest, ATargetThatGoesAwayIsAnError) {
  Block block = make();
  target_.unmap(kAt);
  EXPECT_FALSE(block.add(target_, {make_point(block, 0x400000)}));
  EXPECT_FALSE(block.write_head(target_));
  EXPECT_FALSE(Block::read(target_, kAt));
  EXPECT_FALSE(Block::create(target_, kAt, {10}));
}

// The program has changed its code after a jump. The bytes under the jump itself must still be restored.
TEST_F(BlockTest, WhatStandsAfterAJumpChangesNothingOfItsOwnOriginal) {
  Block block = make();
  NewPoint point = make_point(block, 0x401000);
  point.jump_to = Addr{0x500000}, point.jump_bytes = 5;
  point.following = {0x89, 0xe5, 0x53, 0x50, 0x90, 0x90};
  ASSERT_TRUE(block.add(target_, {point}));
  const shared::ArmedText armed = shared::armed_text(block.points()[0]);
  std::vector<std::uint8_t> now(armed.bytes + 1, armed.bytes + 5);
  now.insert(now.end(), {0x11, 0x22});
  ASSERT_TRUE(block.set_following(target_, 0, now));
  const shared::Undo& undo = block.undo()[0];
  const std::vector<std::uint8_t> kept(undo.original, undo.original + 7);
  EXPECT_EQ(kept, (std::vector<std::uint8_t>{0x48, 0x89, 0xe5, 0x53, 0x50, 0x11, 0x22}));
}

}  // namespace
}  // namespace uprobe::test
