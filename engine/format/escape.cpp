// See escape.h.
#include "engine/format/escape.h"

#include <cstdint>
#include <cstring>

namespace uprobe::format {

namespace {

std::uint8_t byte_at(std::string_view text, std::size_t i) { return static_cast<std::uint8_t>(text[i]); }

bool is_continuation(std::string_view text, std::size_t i) {
  return i < text.size() && (byte_at(text, i) & 0xc0) == 0x80;
}

// The length of the UTF-8 character of two bytes or more that `text` starts with; 0 if there is none, if it is longer
// than need be, a surrogate, beyond U+10FFFF, or a control character.
std::size_t wide_character(std::string_view text) {
  const std::uint8_t lead = byte_at(text, 0);
  if (lead < 0xc2 || lead > 0xf4 || !is_continuation(text, 1)) return 0;
  const std::uint8_t second = byte_at(text, 1);
  if (lead < 0xe0) return lead == 0xc2 && second < 0xa0 ? 0 : 2;
  if (!is_continuation(text, 2)) return 0;
  if (lead < 0xf0) return (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ? 0 : 3;
  if (!is_continuation(text, 3)) return 0;
  return (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90) ? 0 : 4;
}

char* put_byte_escaped(char* at, std::uint8_t byte) {
  const char letter = byte == '\n' ? 'n' : byte == '\t' ? 't' : byte == '\r' ? 'r' : 'x';
  *at++ = '\\';
  *at++ = letter;
  if (letter != 'x') return at;
  *at++ = "0123456789abcdef"[byte >> 4];
  *at++ = "0123456789abcdef"[byte & 15];
  return at;
}

}  // namespace

char* put_escaped(char* at, std::string_view text) {
  while (!text.empty()) {
    const std::uint8_t byte = byte_at(text, 0);
    const bool plain = byte >= 0x20 && byte < 0x7f;
    const std::size_t length = plain ? 1 : wide_character(text);
    if (length == 0) {
      at = put_byte_escaped(at, byte);
      text.remove_prefix(1);
      continue;
    }
    std::memcpy(at, text.data(), length);
    at += length;
    text.remove_prefix(length);
  }
  return at;
}

std::string escaped(std::string_view text) {
  std::string result(kMostEscaped * text.size(), '\0');
  result.resize(static_cast<std::size_t>(put_escaped(result.data(), text) - result.data()));
  return result;
}

}  // namespace uprobe::format
