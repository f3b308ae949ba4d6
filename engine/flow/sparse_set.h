// SPDX-License-Identifier: MIT
// A set of numbers that lie in groups, as addresses do: one bit for each, by words of 64 in a hash table.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace uprobe::plan {

class SparseSet {
 public:
  // False if it was there.
  bool add(std::uint64_t number) {
    if (2 * used_ >= slots_.size()) grow();
    Slot& slot = slots_[place_of(key_of(number))];
    if (slot.key == 0) ++used_;
    slot.key = key_of(number);
    const std::uint64_t bit = std::uint64_t{1} << number % kBits;
    const bool is_new = (slot.bits & bit) == 0;
    slot.bits |= bit;
    size_ += is_new ? 1 : 0;
    return is_new;
  }

  bool has(std::uint64_t number) const { return has_in(number, number + 1); }
  // Whether one of [begin, end) is there. For short ranges: asks once for every 64 numbers.
  bool has_in(std::uint64_t begin, std::uint64_t end) const {
    if (begin >= end) return false;
    const std::uint64_t first = key_of(begin), last = key_of(end - 1);
    for (std::uint64_t key = first; key <= last; ++key) {
      std::uint64_t wanted = ~std::uint64_t{0};
      if (key == first) wanted &= ~std::uint64_t{0} << begin % kBits;
      if (key == last) wanted &= ~std::uint64_t{0} >> (kBits - 1 - (end - 1) % kBits);
      if ((slots_[place_of(key)].bits & wanted) != 0) return true;
    }
    return false;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  static constexpr std::uint64_t kBits = 64;
  struct Slot {
    std::uint64_t key = 0;  // 0: free
    std::uint64_t bits = 0;
  };

  static std::uint64_t key_of(std::uint64_t number) { return number / kBits + 1; }

  // The slot with this key, or the free one where it belongs.
  std::size_t place_of(std::uint64_t key) const {
    constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 by the golden ratio: neighbours come to lie apart
    std::size_t at = key * kSpread >> 32 & (slots_.size() - 1);
    while (slots_[at].key != 0 && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  void grow() {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
    for (const Slot& slot : old)
      if (slot.key != 0) slots_[place_of(slot.key)] = slot;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(32);  // a power of two, at most half in use
  std::size_t used_ = 0, size_ = 0;
};

}  // namespace uprobe::plan
