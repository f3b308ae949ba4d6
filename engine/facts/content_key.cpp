// SPDX-License-Identifier: MIT
#include "engine/facts/content_key.h"

#include <algorithm>
#include <cstring>

namespace uprobe::facts {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::size_t kLanes = 4, kBlock = kLanes * 2 * sizeof(std::uint64_t);
// Digits of the square roots of primes, made odd.
constexpr std::array<std::uint64_t, 4> kOdd = {0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                               0xa54ff53a5f1d36f1};

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  const Wide product = Wide{a} * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Each lane takes two words of a block. A product of zero would forget the lane: so the word before it is added again.
void take_block(std::array<std::uint64_t, kLanes>& lanes, const std::uint8_t* block, const Secret& secret) {
  std::array<std::uint64_t, 2 * kLanes> words{};
  std::memcpy(words.data(), block, kBlock);
  for (std::size_t i = 0; i < kLanes; ++i) {
    const std::uint64_t before = lanes[i] ^ words[2 * i];
    lanes[i] = mixed(before ^ secret.words[2 * i], words[2 * i + 1] ^ secret.words[2 * i + 1]) + before;
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

ContentKey key_of(std::span<const std::uint8_t> bytes, const Secret& secret, const ContentKey& seed) {
  std::array<std::uint64_t, kLanes> lanes{};
  for (std::size_t i = 0; i < kLanes; ++i)
    lanes[i] =
        mixed(seed.words[i % 2] ^ secret.words[2 * kLanes + i], kOdd[i]) ^ (i < 2 ? bytes.size() : ~seed.words[i - 2]);
  std::size_t at = 0;
  for (; bytes.size() - at >= kBlock; at += kBlock) take_block(lanes, bytes.data() + at, secret);
  std::array<std::uint8_t, kBlock> last{};
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), last.begin());
  take_block(lanes, last.data(), secret);
  ContentKey key;
  for (std::size_t word = 0; word < key.words.size(); ++word) {
    std::uint64_t all = bytes.size() + kOdd[word];
    for (std::size_t i = 0; i < kLanes; ++i)
      all = mixed(all ^ lanes[i], secret.words[(2 * i + 5 * word) % secret.words.size()] | 1) + lanes[i];
    key.words[word] = mixed(all ^ kOdd[2], kOdd[3] ^ secret.words[word]);
  }
  return key;
}

}  // namespace uprobe::facts
