// SPDX-License-Identifier: MIT
// What the packer leaves out the unpacker puts back; and whatever bytes the unpacker gets, it gives records or nothing.
#include "engine/recording/packing.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/recording/raw_records.h"
#include "engine/shared/session_area.h"

namespace uprobe::recording {
namespace {

using Bytes = std::vector<std::uint8_t>;

struct Made {
  std::uint16_t type;
  std::uint64_t ns;
  std::vector<std::uint64_t> words;
  std::uint16_t cpu = 1;
};

// As in a ring, but for the number, which a recording does not have.
Bytes record_of(const Made& made) {
  shared::RecordHead head{.length = 0, .number = 0, .tsc = made.ns, .payload_bytes = 0, .cpu = made.cpu, .flags = 0};
  const shared::PayloadHead payload{
      .type = made.type, .flags = 0, .preempt_count = 0, .pid = 77, .ip = 0x401000u + made.type};
  head.payload_bytes = static_cast<std::uint32_t>(sizeof payload + 8 * made.words.size());
  head.length = static_cast<std::uint32_t>(sizeof head) + head.payload_bytes;
  Bytes bytes(head.length);
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, &payload, sizeof payload);
  if (!made.words.empty())
    std::memcpy(bytes.data() + sizeof head + sizeof payload, made.words.data(), 8 * made.words.size());
  return bytes;
}

Bytes joined(const std::vector<Bytes>& records) {
  Bytes all;
  for (const Bytes& record : records) all.insert(all.end(), record.begin(), record.end());
  return all;
}

std::string pack(Packer& packer, const std::vector<Bytes>& records) {
  const Bytes all = joined(records);
  const auto count = static_cast<std::uint32_t>(records.size());
  std::string packed(Packer::most(all.size(), count), '\x55');
  const char* const end = packer.pack(all, count, packed.data());
  EXPECT_NE(end, nullptr);
  if (end == nullptr) return {};
  packed.resize(static_cast<std::size_t>(end - packed.data()));
  EXPECT_LE(packed.size(), Packer::most(all.size(), count) - 8);
  return packed;
}

std::vector<Bytes> unpack(Unpacker& unpacker, std::string_view packed) {
  std::vector<Bytes> records;
  while (!packed.empty()) {
    const auto record = unpacker.next(packed);
    if (!record) break;
    records.emplace_back(record->begin(), record->end());
  }
  EXPECT_TRUE(packed.empty());
  return records;
}

std::vector<Bytes> random_records(std::mt19937_64& random, std::size_t count) {
  std::vector<Bytes> records;
  std::uint64_t ns = 1'000'000'000;
  for (std::size_t i = 0; i < count; ++i) {
    Made made{.type = static_cast<std::uint16_t>(random() % 20), .ns = ns, .words = {}, .cpu = 0};
    ns += random() % 4 == 0 ? random() >> random() % 64 : random() % 3000;
    made.words.resize(random() % 3 == 0 ? random() % 40 : made.type);
    for (std::uint64_t& word : made.words) word = random() >> random() % 64;
    made.cpu = static_cast<std::uint16_t>(random() % 10 == 0);
    records.push_back(record_of(made));
  }
  return records;
}

TEST(Packing, GivesBackWhatWasPacked) {
  std::mt19937_64 random(7);
  Packer packer;
  Unpacker unpacker;
  for (int entry = 0; entry < 300; ++entry) {
    if (entry % 10 == 0) packer.begin_block(), unpacker.begin_block();
    const std::vector<Bytes> records = random_records(random, 1 + random() % 50);
    ASSERT_EQ(unpack(unpacker, pack(packer, records)), records) << entry;
  }
}

// Three registers, of which two are pointers into one object: what most recordings are made of.
TEST(Packing, TakesLessThanHalf) {
  std::vector<Bytes> records;
  for (std::uint64_t i = 0; i < 100; ++i)
    records.push_back(
        record_of({.type = 3, .ns = 5'000'000'000 + 700 * i, .words = {0x7f1234560000 + 64 * i, i, 0x7f1234500000}}));
  Packer packer;
  EXPECT_LT(pack(packer, records).size(), joined(records).size() * 3 / 10);
}

TEST(Packing, WithoutAnythingInCommonItTakesHardlyMore) {
  std::mt19937_64 random(1);
  std::vector<Bytes> records;
  for (std::uint16_t i = 0; i < 50; ++i) {
    Made made{.type = i, .ns = random(), .words = std::vector<std::uint64_t>(i)};
    for (std::uint64_t& word : made.words) word = random();
    records.push_back(record_of(made));
  }
  Packer packer;
  EXPECT_LE(pack(packer, records).size(), joined(records).size() + 3 * records.size());
}

TEST(Packing, WhatIsNoRecordIsNotPacked) {
  const Bytes good =
      joined({record_of({.type = 1, .ns = 1, .words = {1}}), record_of({.type = 1, .ns = 2, .words = {2}})});
  std::string room(Packer::most(good.size(), 3), '\0');
  Packer packer;
  EXPECT_NE(packer.pack(good, 2, room.data()), nullptr);
  EXPECT_EQ(packer.pack(good, 1, room.data()), nullptr);
  EXPECT_EQ(packer.pack(good, 3, room.data()), nullptr);
  for (const std::uint32_t length : {0u, 8u, 32u, 47u, 56u, 0xffffffffu}) {
    Bytes bad = good;
    std::memcpy(bad.data() + bad.size() / 2, &length, sizeof length);
    EXPECT_EQ(packer.pack(bad, 2, room.data()), nullptr) << length;
  }
}

// No byte of it makes the unpacker read or write outside, or give a record that is none.
TEST(Packing, AnyBytesAreRecordsOrRefused) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    Packer packer;
    std::string packed = pack(packer, random_records(random, 1 + random() % 6));
    for (int change = 0; change < 3; ++change) packed[random() % packed.size()] = static_cast<char>(random());
    packed.resize(packed.size() - random() % 3 % packed.size());
    const std::string exact(packed);
    std::string_view left(exact);
    Unpacker unpacker;
    while (!left.empty()) {
      const std::size_t before = left.size();
      const auto record = unpacker.next(left);
      if (!record) break;
      ASSERT_LT(left.size(), before);
      ASSERT_GE(record->size(), 40u);
      ASSERT_LE(record->size(), shared::kMaxRecord);
    }
  }
}

TEST(Packing, BitsWithoutAMeaningAreRefused) {
  Packer packer;
  const std::string good = pack(packer, {record_of({.type = 1, .ns = 1, .words = {1, 2}})});
  const auto is_taken = [](std::string_view packed) { return Unpacker().next(packed).has_value(); };
  EXPECT_TRUE(is_taken(good));
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(is_taken(good.substr(0, size))) << size;
  std::string bad = good;
  bad[0] = static_cast<char>(bad[0] | 0x20);
  EXPECT_FALSE(is_taken(bad)) << "a bit of the tag";
  bad = good;
  constexpr std::size_t kCodes = 1 + 28 + 4;
  bad[kCodes] = static_cast<char>(bad[kCodes] | 0x10);
  EXPECT_FALSE(is_taken(bad + std::string(8, '\0'))) << "a third word";
}

}  // namespace
}  // namespace uprobe::recording
