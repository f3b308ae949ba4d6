// SPDX-License-Identifier: MIT
#include "engine/output/conversion.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

namespace uprobe::format {
namespace {

using spec::Conversion;

// A number in parts: sign, "0x", zeros, digits.
struct Parts {
  std::string_view sign, prefix, digits;
  std::size_t zeros = 0;
  bool may_have_zeros = true;  // instead of blanks, as wide as the conversion
};

char* fill(char* at, std::size_t count, char c) {
  std::memset(at, c, count);
  return at + count;
}

char* put_part(char* at, std::string_view text) {
  std::copy(text.begin(), text.end(), at);
  return at + text.size();
}

char* put_parts(char* at, const Conversion& conversion, Parts parts) {
  const std::size_t size = parts.sign.size() + parts.prefix.size() + parts.zeros + parts.digits.size();
  std::size_t blanks = padding(conversion, size);
  if (conversion.has_zeros && !conversion.is_left && parts.may_have_zeros) {
    parts.zeros += blanks;
    blanks = 0;
  }
  if (!conversion.is_left) at = fill(at, blanks, ' ');
  at = put_part(put_part(at, parts.sign), parts.prefix);
  at = put_part(fill(at, parts.zeros, '0'), parts.digits);
  return conversion.is_left ? fill(at, blanks, ' ') : at;
}

std::string_view sign_of(const Conversion& conversion, bool is_negative) {
  if (is_negative) return "-";
  return conversion.has_plus ? "+" : conversion.has_blank ? " " : "";
}

std::uint64_t lowest(std::uint64_t value, std::uint8_t bytes) {
  return bytes >= 8 ? value : value & ((std::uint64_t{1} << (8 * bytes)) - 1);
}

bool is_negative(std::uint64_t value, std::uint8_t bytes) { return ((value >> (8 * bytes - 1)) & 1) != 0; }

void to_upper(char* begin, const char* end) {
  for (; begin != end; ++begin)
    if (*begin >= 'a' && *begin <= 'z') *begin = static_cast<char>(*begin - 'a' + 'A');
}

int base_of(char letter) {
  if (letter == 'o') return 8;
  return letter == 'x' || letter == 'X' || letter == 'p' ? 16 : 10;
}

std::string_view prefix_of(const Conversion& conversion, std::uint64_t value) {
  if (conversion.letter == 'p') return "0x";
  if (!conversion.has_prefix || value == 0) return "";
  return conversion.letter == 'x' ? "0x" : conversion.letter == 'X' ? "0X" : conversion.letter == 'o' ? "0" : "";
}

std::chars_format format_of(char letter) {
  switch (letter) {
    case 'e':
    case 'E':
      return std::chars_format::scientific;
    case 'f':
    case 'F':
      return std::chars_format::fixed;
    case 'a':
    case 'A':
      return std::chars_format::hex;
    default:
      return std::chars_format::general;
  }
}

}  // namespace

std::size_t padding(const Conversion& conversion, std::size_t characters) {
  return conversion.width > characters ? conversion.width - characters : 0;
}

char* put_integer(char* at, const Conversion& conversion, std::uint64_t value, std::uint8_t bytes) {
  value = lowest(value, bytes);
  const int base = base_of(conversion.letter);
  const bool has_minus = base == 10 && conversion.letter != 'u' && is_negative(value, bytes);
  if (has_minus) value = lowest(0 - value, bytes);
  std::array<char, 24> digits;
  char* end = std::to_chars(digits.begin(), digits.end(), value, base).ptr;
  if (conversion.letter == 'X') to_upper(digits.begin(), end);
  if (value == 0 && conversion.precision == 0u) end = digits.begin();
  Parts parts{.digits = {digits.begin(), static_cast<std::size_t>(end - digits.begin())}};
  if (base == 10 && conversion.letter != 'u') parts.sign = sign_of(conversion, has_minus);
  parts.prefix = prefix_of(conversion, value);
  const std::size_t least = conversion.precision.value_or(0);
  parts.zeros = least > parts.digits.size() ? least - parts.digits.size() : 0;
  parts.may_have_zeros = !conversion.precision;
  return put_parts(at, conversion, parts);
}

char* put_floating(char* at, const Conversion& conversion, double value) {
  std::array<char, 480> digits;
  const double magnitude = std::fabs(value);
  const auto format = format_of(conversion.letter);
  const bool is_shortest = format == std::chars_format::hex && !conversion.precision;
  const auto precision = static_cast<int>(conversion.precision.value_or(6));
  char* end = is_shortest ? std::to_chars(digits.begin(), digits.end(), magnitude, format).ptr
                          : std::to_chars(digits.begin(), digits.end(), magnitude, format, precision).ptr;
  const bool is_upper = conversion.letter >= 'A' && conversion.letter <= 'Z';
  if (is_upper) to_upper(digits.begin(), end);
  Parts parts{.digits = {digits.begin(), static_cast<std::size_t>(end - digits.begin())}};
  parts.sign = sign_of(conversion, std::signbit(value));
  parts.may_have_zeros = std::isfinite(value);
  if (format == std::chars_format::hex && std::isfinite(value)) parts.prefix = is_upper ? "0X" : "0x";
  return put_parts(at, conversion, parts);
}

}  // namespace uprobe::format
