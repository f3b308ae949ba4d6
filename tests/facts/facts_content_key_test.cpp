// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/facts/content_key.h"

namespace uprobe::facts {
namespace {

const Secret kSecret = [] {
  std::mt19937_64 random(7);
  Secret secret;
  for (std::uint64_t& word : secret.words) word = random();
  return secret;
}();
ContentKey key_of(std::span<const std::uint8_t> bytes, const ContentKey& seed = {}) {
  return facts::key_of(bytes, kSecret, seed);
}

TEST(ContentKey, EveryBitCounts) {
  for (const std::size_t size : {1, 7, 64, 65, 200}) {
    std::vector<std::uint8_t> bytes(size, 0);
    std::set<std::string> seen{key_of(bytes).text()};
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      EXPECT_TRUE(seen.insert(key_of(bytes).text()).second) << size << " " << bit;
      bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    }
  }
}

TEST(ContentKey, ZerosAtTheEndCount) {
  std::set<std::string> seen;
  for (std::size_t size = 0; size < 300; ++size)
    EXPECT_TRUE(seen.insert(key_of(std::vector<std::uint8_t>(size, 0)).text()).second) << size;
}

TEST(ContentKey, NeighboursThatChangePlacesCount) {
  std::vector<std::uint8_t> bytes(512);
  std::mt19937 random(1);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  std::set<std::string> seen{key_of(bytes).text()};
  for (const std::size_t size : {8, 16, 32, 64})
    for (std::size_t at = 0; at + 2 * size <= bytes.size(); at += size) {
      std::vector<std::uint8_t> other = bytes;
      std::swap_ranges(other.begin() + static_cast<std::ptrdiff_t>(at),
                       other.begin() + static_cast<std::ptrdiff_t>(at + size),
                       other.begin() + static_cast<std::ptrdiff_t>(at + size));
      EXPECT_TRUE(seen.insert(key_of(other).text()).second) << size << " " << at;
    }
}

TEST(ContentKey, ASeedMakesAnotherKey) {
  const std::vector<std::uint8_t> bytes(100, 7);
  EXPECT_NE(key_of(bytes, {}), key_of(bytes, {1, 0}));
  EXPECT_NE(key_of(bytes, {1, 0}), key_of(bytes, {0, 1}));
  EXPECT_EQ(key_of(bytes, {1, 0}), key_of(bytes, {1, 0}));
}

TEST(ContentKey, ASecretMakesAnotherKey) {
  const std::vector<std::uint8_t> bytes(100, 7);
  for (std::size_t i = 0; i < kSecret.words.size(); ++i) {
    Secret other = kSecret;
    other.words[i] ^= 1;
    EXPECT_NE(facts::key_of(bytes, kSecret), facts::key_of(bytes, other)) << i;
  }
}

TEST(ContentKey, TextIsOfDigits) { EXPECT_EQ((ContentKey{0x1234, 0xf}).text(), "0000000000001234000000000000000f"); }

}  // namespace
}  // namespace uprobe::facts
