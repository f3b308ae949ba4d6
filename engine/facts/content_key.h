// SPDX-License-Identifier: MIT
// A number of 128 bits that stands for bytes. Two files whose bytes differ have the same one by chance alone, also where one author makes
// both, as long as that author does not know the secret: each product has a secret factor.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace uprobe::facts {

struct ContentKey {
  std::array<std::uint64_t, 2> words{};
  bool operator==(const ContentKey&) const = default;
  std::string text() const;  // 32 hexadecimal digits
};

struct Secret {
  std::array<std::uint64_t, 12> words{};  // random
};

// `seed`: keys with different seeds have nothing to do with each other.
ContentKey key_of(std::span<const std::uint8_t> bytes, const Secret& secret, const ContentKey& seed = {});

}  // namespace uprobe::facts
