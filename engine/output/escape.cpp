// SPDX-License-Identifier: MIT
// See escape.h.
#include "engine/output/escape.h"

#include <cstdint>
#include <cstring>

namespace uprobe::format {

namespace {

std::uint8_t byte_at(std::string_view text, std::size_t i) { return static_cast<std::uint8_t>(text[i]); }

bool is_continuation(std::string_view text, std::size_t i) {
  return i < text.size() && (byte_at(text, i) & 0xc0) == 0x80;
}

// U+200B to U+200F, U+2028 to U+202E, U+2060 to U+206F, U+FEFF: they reorder or split the shown text.
bool is_format(std::uint8_t lead, std::uint8_t second, std::uint8_t third) {
  if (lead == 0xef) return second == 0xbb && third == 0xbf;
  if (lead != 0xe2 || (second != 0x80 && second != 0x81)) return false;
  if (second == 0x81) return third >= 0xa0 && third <= 0xaf;
  return (third >= 0x8b && third <= 0x8f) || (third >= 0xa8 && third <= 0xae);
}

// The length of the UTF-8 character of two bytes or more at the beginning of `text`; 0 if there is none, or if it is a control
// character.
std::size_t wide_character(std::string_view text) {
  const std::uint8_t lead = byte_at(text, 0);
  const std::size_t length = lead < 0x80 ? 0 : utf8_character(text);
  if (length == 2 && lead == 0xc2 && byte_at(text, 1) < 0xa0) return 0;
  return length == 3 && is_format(lead, byte_at(text, 1), byte_at(text, 2)) ? 0 : length;
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

std::size_t utf8_character(std::string_view text) {
  const std::uint8_t lead = byte_at(text, 0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4 || !is_continuation(text, 1)) return 0;
  const std::uint8_t second = byte_at(text, 1);
  if (lead < 0xe0) return 2;
  if (!is_continuation(text, 2)) return 0;
  if (lead < 0xf0) return (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ? 0 : 3;
  if (!is_continuation(text, 3)) return 0;
  return (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90) ? 0 : 4;
}

bool is_shown(std::string_view character) {
  const std::uint8_t lead = byte_at(character, 0);
  return lead < 0x80 ? lead >= 0x20 && lead != 0x7f : wide_character(character) != 0;
}

char* put_escaped(char* at, std::string_view text) {
  while (!text.empty()) {
    std::size_t plain = 0;
    while (plain < text.size() && byte_at(text, plain) >= 0x20 && byte_at(text, plain) < 0x7f) ++plain;
    const std::size_t length = plain != 0 ? plain : wide_character(text);
    if (length == 0) {
      at = put_byte_escaped(at, byte_at(text, 0));
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
