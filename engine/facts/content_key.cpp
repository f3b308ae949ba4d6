// SPDX-License-Identifier: MIT
#include "engine/facts/content_key.h"

#include <algorithm>
#include <cstring>

namespace uprobe::facts {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::size_t kLanes = 4, kBlock = kLanes * 2 * sizeof(std::uint64_t);
// Digits of the square roots of primes, made odd.
constexpr std::array<std::uint64_t, 2 * kLanes> kOdd = {0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                                        0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                                        0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  const Wide product = Wide{a} * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Each lane takes two words of a block. A product of zero would forget the lane: so the word before it is added again.
void take_block(std::array<std::uint64_t, kLanes>& lanes, const std::uint8_t* block) {
  std::array<std::uint64_t, 2 * kLanes> words{};
  std::memcpy(words.data(), block, kBlock);
  for (std::size_t i = 0; i < kLanes; ++i) {
    const std::uint64_t before = lanes[i] ^ words[2 * i];
    lanes[i] = mixed(before ^ kOdd[2 * i], words[2 * i + 1] ^ kOdd[2 * i + 1]) + before;
  }
}

}  // namespace

std::string ContentKey::text() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint64_t word : words)
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[word >> shift & 15];
  return text;
}

ContentKey key_of(std::span<const std::uint8_t> bytes, const ContentKey& seed) {
  std::array<std::uint64_t, kLanes> lanes = {seed.words[0], seed.words[1], ~seed.words[0], bytes.size()};
  std::size_t at = 0;
  for (; bytes.size() - at >= kBlock; at += kBlock) take_block(lanes, bytes.data() + at);
  std::array<std::uint8_t, kBlock> last{};
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), last.begin());
  take_block(lanes, last.data());
  ContentKey key;
  for (std::size_t word = 0; word < key.words.size(); ++word) {
    std::uint64_t all = bytes.size() + kOdd[word];
    for (std::size_t i = 0; i < kLanes; ++i) all = mixed(all ^ lanes[i], kOdd[(i + word) % kOdd.size()]) + lanes[i];
    key.words[word] = mixed(all ^ kOdd[2], kOdd[5 + word]);
  }
  return key;
}

}  // namespace uprobe::facts
