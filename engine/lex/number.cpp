// SPDX-License-Identifier: MIT
// One digit reader for all three; the callers differ in signs, in overflow and in the characters that may follow.
#include "engine/lex/number.h"

#include <cerrno>
#include <limits>

namespace uprobe::spec {
namespace {

struct Digits {
  std::uint64_t value = 0;
  std::size_t used = 0;  // characters, a 0x included
  bool digits = false;
  bool overflow = false;
};

unsigned digit_of(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return 99;
}

// "0x" without a hexadecimal digit after it is the octal number 0 followed by an x.
bool has_hex_prefix(std::string_view text) {
  return text.size() >= 3 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X') && digit_of(text[2]) < 16;
}

Digits read_digits(std::string_view text, unsigned base) {
  Digits result;
  if (base == 0) base = has_hex_prefix(text) ? 16 : text.starts_with('0') ? 8 : 10;
  if (base == 16 && has_hex_prefix(text)) result.used = 2;
  for (; result.used < text.size() && digit_of(text[result.used]) < base; ++result.used) {
    const unsigned digit = digit_of(text[result.used]);
    if (result.value > (std::numeric_limits<std::uint64_t>::max() - digit) / base) result.overflow = true;
    result.value = result.value * base + digit;
    result.digits = true;
  }
  return result;
}

}  // namespace

int read_unsigned(std::string_view text, unsigned base, std::uint64_t& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const Digits digits = read_digits(text, base);
  if (digits.overflow) return ERANGE;
  if (!digits.digits || digits.used != text.size()) return EINVAL;
  value = digits.value;
  return 0;
}

int read_signed(std::string_view text, unsigned base, std::int64_t& value) {
  constexpr std::uint64_t kTop = std::uint64_t{1} << 63;
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (negative && text.starts_with('+')) return EINVAL;
  std::uint64_t magnitude = 0;
  if (const int err = read_unsigned(text, base, magnitude)) return err;
  if (magnitude > kTop || (magnitude == kTop && !negative)) return ERANGE;
  value = static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude);
  return 0;
}

std::uint64_t read_wrapping(std::string_view text, std::size_t& used) {
  const Digits digits = read_digits(text, 0);
  used = digits.digits ? digits.used : 0;
  return digits.value;
}

}  // namespace uprobe::spec
