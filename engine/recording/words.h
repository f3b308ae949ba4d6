// SPDX-License-Identifier: MIT
// Numbers and strings of the entries that are not hits: a number as it is, a string after its length.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace uprobe::recording {

class Writer {
 public:
  template <class T>
  Writer& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& text(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  std::string_view bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reads what anybody may have written. After the first thing that is not there it gives zeros and empty strings.
class Parser {
 public:
  explicit Parser(std::string_view bytes) : left_(bytes) {}

  template <class T>
  T number() {
    T value{};
    const std::string_view taken = take(sizeof value);
    if (taken.size() == sizeof value) std::memcpy(&value, taken.data(), sizeof value);
    return value;
  }
  std::string_view text() { return take(number<std::uint32_t>()); }
  std::string_view take(std::size_t size) {
    if (size > left_.size()) is_good_ = false;
    if (!is_good_) return {};
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  std::size_t left() const { return left_.size(); }
  bool is_good() const { return is_good_; }
  bool is_at_end() const { return is_good_ && left_.empty(); }

 private:
  std::string_view left_;
  bool is_good_ = true;
};

}  // namespace uprobe::recording
