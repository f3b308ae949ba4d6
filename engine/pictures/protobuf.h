// SPDX-License-Identifier: MIT
// Writes messages in the wire format of Protocol Buffers (https://protobuf.dev/programming-guides/encoding).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace uprobe::format {

class ProtobufWriter {
 public:
  // A number that is zero is the default, and is left out.
  ProtobufWriter& number(std::uint32_t field, std::uint64_t value) {
    if (value == 0) return *this;
    add_varint(std::uint64_t{field} << 3);
    add_varint(value);
    return *this;
  }
  // Also of a message.
  ProtobufWriter& bytes(std::uint32_t field, std::string_view value) {
    add_varint(std::uint64_t{field} << 3 | kLengthFirst);
    add_varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufWriter& numbers(std::uint32_t field, std::span<const std::uint64_t> values) {
    ProtobufWriter packed;
    for (const std::uint64_t value : values) packed.add_varint(value);
    return bytes(field, packed.bytes_);
  }
  const std::string& view() const { return bytes_; }

 private:
  static constexpr std::uint64_t kLengthFirst = 2;  // a wire type; that of numbers is 0
  static constexpr std::uint64_t kMore = 128;       // further bytes follow
  void add_varint(std::uint64_t value) {
    for (; value >= kMore; value >>= 7) bytes_ += static_cast<char>(value | kMore);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace uprobe::format
