// SPDX-License-Identifier: MIT
// Bounds-checked reading of untrusted bytes. engine/elf reads a file's contents only through these two classes: an offset may
// be any 64-bit number, and data that does not lie wholly inside does not exist.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace uprobe::elf {

// Bytes at random places. Does not own them.
class BytesView {
 public:
  BytesView() = default;
  explicit BytesView(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::uint64_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  std::span<const std::uint8_t> span() const { return bytes_; }
  bool holds(std::uint64_t offset, std::uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }

  template <class T>
  std::optional<T> read(std::uint64_t offset) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!holds(offset, sizeof(T))) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  // All `size` bytes or none.
  BytesView slice(std::uint64_t offset, std::uint64_t size) const {
    return holds(offset, size) ? BytesView(bytes_.subspan(offset, size)) : BytesView();
  }
  // From the offset to the end.
  BytesView from(std::uint64_t offset) const {
    return offset <= bytes_.size() ? BytesView(bytes_.subspan(offset)) : BytesView();
  }
  // The NUL-terminated text at the offset; nothing if it is longer than `limit` or does not end.
  std::optional<std::string_view> text(std::uint64_t offset, std::uint64_t limit) const {
    const BytesView rest = from(offset);
    const std::uint64_t reach = rest.size() < limit + 1 ? rest.size() : limit + 1;
    if (reach == 0) return std::nullopt;
    const void* end = std::memchr(rest.bytes_.data(), 0, reach);
    if (end == nullptr) return std::nullopt;
    const std::uint8_t* begin = rest.bytes_.data();
    const auto length = static_cast<std::size_t>(static_cast<const std::uint8_t*>(end) - begin);
    return std::string_view(reinterpret_cast<const char*>(begin), length);
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

// Bytes read one after the other. After the end it yields zeros and `good()` stays false for ever: a parser checks once at the
// end of a step instead of after each field.
class Cursor {
 public:
  explicit Cursor(BytesView bytes, std::uint64_t at = 0) : bytes_(bytes), at_(at) {}

  bool good() const { return good_; }
  std::uint64_t at() const { return at_; }

  template <class T>
  T take() {
    const std::optional<T> value = bytes_.read<T>(at_);
    if (!value) return fail<T>();
    at_ += sizeof(T);
    return *value;
  }
  void skip(std::uint64_t size) {
    if (!bytes_.holds(at_, size)) return void(fail<int>());
    at_ += size;
  }
  std::string_view text(std::uint64_t limit) {
    const std::optional<std::string_view> found = bytes_.text(at_, limit);
    if (!found) return fail<std::string_view>();
    at_ += found->size() + 1;
    return *found;
  }
  BytesView slice(std::uint64_t size) {
    const BytesView found = bytes_.slice(at_, size);
    skip(size);
    return found;
  }
  std::uint64_t uleb() { return leb(false); }
  std::int64_t sleb() { return static_cast<std::int64_t>(leb(true)); }

 private:
  template <class T>
  T fail() {
    good_ = false;
    return T{};
  }
  std::uint64_t leb(bool is_signed) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = take<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) != 0) continue;
      if (is_signed && (byte & 0x40) != 0 && shift + 7 < 64) value |= ~std::uint64_t{0} << (shift + 7);
      return value;
    }
    return fail<std::uint64_t>();
  }

  BytesView bytes_;
  std::uint64_t at_;
  bool good_ = true;
};

}  // namespace uprobe::elf
