// SPDX-License-Identifier: MIT
// Encoding of messages between processes of the tool: numbers in memory layout (both ends are on one machine), texts with their
// length first. Neither side trusts a length that the other gives.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace uprobe {

inline void put(std::string& to, std::uint32_t number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}
inline void put_long(std::string& to, std::uint64_t number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}
inline void put(std::string& to, std::string_view text) {
  put(to, static_cast<std::uint32_t>(text.size()));
  to.append(text);
}

// Reads values from the beginning of the bytes. After the first failure every further read fails.
class Parser {
 public:
  explicit Parser(std::string_view bytes) : rest_(bytes) {}
  std::uint32_t number() { return take<std::uint32_t>(); }
  std::uint64_t long_number() { return take<std::uint64_t>(); }
  std::string_view view() {
    const std::uint32_t size = number();
    if (size > rest_.size()) return fail(), std::string_view();
    const std::string_view value = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return value;
  }
  std::string text() { return std::string(view()); }
  // A value of an enumeration whose greatest value is `last`.
  template <class Kind>
  Kind kind(Kind last) {
    const std::uint32_t value = number();
    if (value > static_cast<std::uint32_t>(last)) fail();
    return good_ ? static_cast<Kind>(value) : Kind{};
  }
  bool good() const { return good_; }
  std::string_view rest() const { return rest_; }
  bool is_done() const { return good_ && rest_.empty(); }

 private:
  template <class T>
  T take() {
    T value{};
    if (rest_.size() < sizeof value) return fail(), T{};
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  void fail() { good_ = false, rest_ = {}; }
  std::string_view rest_;
  bool good_ = true;
};

void put(std::string& to, const Error& error);
Error take_error(Parser& from);

}  // namespace uprobe
