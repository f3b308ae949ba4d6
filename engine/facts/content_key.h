// SPDX-License-Identifier: MIT
// A number of 128 bits that stands for bytes. Two files whose bytes differ have the same one by chance alone; it is no cryptographic one:
// who chooses both files may choose such a pair.
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

// `seed`: keys with different seeds have nothing to do with each other.
ContentKey key_of(std::span<const std::uint8_t> bytes, const ContentKey& seed = {});

}  // namespace uprobe::facts
