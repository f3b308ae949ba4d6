// SPDX-License-Identifier: MIT
// The semaphores of a process: how often they are counted, which writes that takes, and what a process may have written
// to the table.
#include <gtest/gtest.h>

#include "engine/patch/semaphores.h"
#include "tests/arm/fake_target.h"

namespace uprobe::test {
namespace {

using control::Block;
using shared::Semaphore;

constexpr Addr kBlock{0x10000000}, kData{0x601000}, kFirst = kData + 8, kSecond = kData + 10;

class Semaphores : public testing::Test {
 protected:
  Semaphores() : block_(made(target_)) {
    data_.begin = kData, data_.end = kData + 0x1000, data_.readable = data_.writable = true, data_.path = "/made";
    target_.map(data_);
  }
  static Block made(FakeTarget& target) {
    target.map_anonymous(kBlock, Block::bytes_for({10}));
    return Block::create(target, kBlock, {10}).take();
  }
  Status count(const std::vector<Addr>& wanted) {
    return control::count_semaphores(target_, block_, target_.maps().take(), wanted);
  }
  std::uint16_t value(Addr at) { return target_.get<std::uint16_t>(at); }
  void set(Addr at, std::uint16_t value) { ASSERT_TRUE(target_.write(at, &value, sizeof value)); }
  Semaphore entry(std::size_t index) {
    return target_.get<Semaphore>(kBlock + offsetof(shared::ProcessBlock, semaphores) + index * sizeof(Semaphore));
  }
  void claim(std::size_t index, const Semaphore& semaphore) {
    ASSERT_TRUE(block_.set_semaphore(target_, index, semaphore));
  }

  FakeTarget target_;
  target::Mapping data_;
  Block block_;
};

TEST_F(Semaphores, GoUpOnceAndDownOnce) {
  EXPECT_TRUE(control::are_counted(target_, block_, {}));
  EXPECT_FALSE(control::are_counted(target_, block_, {kFirst}));
  ASSERT_TRUE(count({kFirst, kSecond}));
  ASSERT_TRUE(count({kFirst, kSecond}));
  EXPECT_TRUE(control::are_counted(target_, block_, {kFirst, kSecond}));
  EXPECT_EQ(value(kFirst), 1);
  EXPECT_EQ(value(kSecond), 1);
  ASSERT_TRUE(count({kSecond}));
  EXPECT_EQ(value(kFirst), 0);
  EXPECT_EQ(value(kSecond), 1);
  ASSERT_TRUE(count({}));
  ASSERT_TRUE(count({}));
  EXPECT_EQ(value(kSecond), 0);
  EXPECT_EQ(entry(0).address, 0u);
  EXPECT_EQ(entry(1).address, 0u);
}

TEST_F(Semaphores, OtherTracersKeepTheirs) {
  set(kFirst, 3);
  ASSERT_TRUE(count({kFirst}));
  EXPECT_EQ(value(kFirst), 4);
  ASSERT_TRUE(count({}));
  EXPECT_EQ(value(kFirst), 3);
}

TEST_F(Semaphores, GoNeitherBelowZeroNorAboveTheKernels) {
  ASSERT_TRUE(count({kFirst}));
  set(kFirst, 0);
  ASSERT_TRUE(count({}));
  EXPECT_EQ(value(kFirst), 0);
  set(kFirst, shared::kMostCounted);
  ASSERT_TRUE(count({kFirst}));
  EXPECT_EQ(value(kFirst), shared::kMostCounted);
}

TEST_F(Semaphores, OfALibraryThatWasLoadedAnewGoUpAgain) {
  ASSERT_TRUE(count({kFirst}));
  set(kFirst, 0);
  EXPECT_FALSE(control::are_counted(target_, block_, {kFirst}));
  ASSERT_TRUE(count({kFirst}));
  EXPECT_EQ(value(kFirst), 1);
}

TEST_F(Semaphores, ThatTheAgentHasCountedDownGoUpAgain) {
  ASSERT_TRUE(count({kFirst}));
  set(kFirst, 1);
  claim(0, {.address = kFirst.value, .is_up = 0, .reserved = 0});
  EXPECT_FALSE(control::are_counted(target_, block_, {kFirst}));
  ASSERT_TRUE(count({kFirst}));
  EXPECT_EQ(value(kFirst), 2);  // the other one is another tracer's
}

TEST_F(Semaphores, TheEntryIsWrittenBeforeTheCount) {
  target_.writes.clear();
  ASSERT_TRUE(count({kFirst}));
  ASSERT_GE(target_.writes.size(), 2u);
  EXPECT_EQ(target_.writes.back().at, kFirst);
  EXPECT_NE(target_.writes.front().at, kFirst);
}

// So that a tool that is killed between the two leaves an entry with which the agent can count.
TEST_F(Semaphores, TheEntryGoesAfterTheCount) {
  ASSERT_TRUE(count({kFirst}));
  target_.writes.clear();
  ASSERT_TRUE(count({}));
  ASSERT_EQ(target_.writes.size(), 2u);
  EXPECT_EQ(target_.writes.front().at, kFirst);
}

// The table is the process's own memory: what it claims there leads to no write outside of its private data.
TEST_F(Semaphores, AProcessThatLiesHarmsNothing) {
  target::Mapping shared = data_, text = data_, heap = data_;
  shared.begin = Addr{0x700000}, shared.end = Addr{0x701000}, shared.shared = true;
  text.begin = Addr{0x800000}, text.end = Addr{0x801000}, text.writable = false;
  heap.begin = Addr{0x900000}, heap.end = Addr{0x901000}, heap.path = "[heap]";
  const std::vector<Addr> lies = {shared.begin, text.begin, heap.begin, kData + 9, Addr{~0ULL}, Addr{0xa00000}};
  for (const target::Mapping& m : {shared, text, heap}) target_.map(m, std::vector<std::uint8_t>(0x1000, 7));
  for (std::size_t i = 0; i < lies.size(); ++i) claim(i, {.address = lies[i].value, .is_up = 1, .reserved = 0});
  set(kData + 8, 0x0707);
  ASSERT_TRUE(count({}));
  for (const Addr at : {shared.begin, text.begin, heap.begin, kData + 8}) EXPECT_EQ(value(at), 0x0707);
  for (std::size_t i = 0; i < lies.size(); ++i) EXPECT_EQ(entry(i).address, 0u);
}

TEST_F(Semaphores, AnAddressCountsOnce) {
  set(kFirst, 9);
  for (std::size_t i = 0; i < 4; ++i) claim(i, {.address = kFirst.value, .is_up = 1, .reserved = 0});
  EXPECT_FALSE(control::are_counted(target_, block_, {kFirst}));
  ASSERT_TRUE(count({kFirst}));
  EXPECT_TRUE(control::are_counted(target_, block_, {kFirst}));
  ASSERT_TRUE(count({}));
  EXPECT_EQ(value(kFirst), 8);
}

TEST_F(Semaphores, TooManyAreSaidSo) {
  std::vector<Addr> many;
  for (std::size_t i = 0; i <= shared::kSemaphores; ++i) many.push_back(kData + 2 * i);
  const Status counted = count(many);
  ASSERT_FALSE(counted);
  EXPECT_EQ(counted.error().code, Code::limit);
  EXPECT_EQ(value(many[shared::kSemaphores - 1]), 1);
  EXPECT_EQ(value(many[shared::kSemaphores]), 0);
  ASSERT_TRUE(count({}));
  EXPECT_EQ(value(many[0]), 0);
  EXPECT_EQ(value(many[shared::kSemaphores - 1]), 0);
}

TEST_F(Semaphores, AnImpossibleCountIsBounded) {
  block_.head().semaphore_count = ~0u;
  ASSERT_TRUE(count({kFirst}));
  EXPECT_EQ(value(kFirst), 1);
  ASSERT_TRUE(count({}));
  EXPECT_EQ(value(kFirst), 0);
}

}  // namespace
}  // namespace uprobe::test
