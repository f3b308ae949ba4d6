// SPDX-License-Identifier: MIT
// Facts as bytes, in the order in which they are put and taken.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace uprobe::facts {

class Packer {
 public:
  void put(std::uint64_t number) { put_all(&number, 1); }
  // With their number in front. For types without padding, and of which all values are valid.
  template <class T>
  void put(const std::vector<T>& all) {
    static_assert(std::has_unique_object_representations_v<T> && !std::is_same_v<T, bool>);
    put(all.size());
    put_all(all.data(), all.size());
  }
  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  template <class T>
  void put_all(const T* all, std::size_t count) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + count * sizeof(T));
    if (count != 0) std::memcpy(bytes_.data() + at, all, count * sizeof(T));
  }

  std::vector<std::uint8_t> bytes_;
};

// Each take is false, and all later ones are, where the bytes do not have it.
class Unpacker {
 public:
  explicit Unpacker(std::span<const std::uint8_t> bytes) : left_(bytes) {}

  bool take(std::uint64_t& number) { return take_all(&number, 1); }
  template <class T>
  bool take(std::vector<T>& all) {
    static_assert(std::has_unique_object_representations_v<T> && !std::is_same_v<T, bool>);
    std::uint64_t count = 0;
    if (!take(count) || count > left_.size() / sizeof(T)) return fail();
    if (reinterpret_cast<std::uintptr_t>(left_.data()) % alignof(T) != 0) {
      all.resize(count);
      return take_all(all.data(), count);
    }
    const T* const first = reinterpret_cast<const T*>(left_.data());  // what is large need not be zeros first
    all.assign(first, first + count);
    left_ = left_.subspan(count * sizeof(T));
    return true;
  }
  // Whether all has been taken.
  bool is_done() const { return is_good_ && left_.empty(); }

 private:
  bool fail() { return is_good_ = false; }
  template <class T>
  bool take_all(T* all, std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (!is_good_ || bytes > left_.size()) return fail();
    if (count != 0) std::memcpy(all, left_.data(), bytes);
    left_ = left_.subspan(bytes);
    return true;
  }

  std::span<const std::uint8_t> left_;
  bool is_good_ = true;
};

}  // namespace uprobe::facts
