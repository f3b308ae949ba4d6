// SPDX-License-Identifier: MIT
#include "engine/output/json_text.h"

#include <cstdint>
#include <cstring>

#include "engine/output/escape.h"

namespace uprobe::format {

namespace {

constexpr std::size_t kMostBytes = 6;  // that one byte becomes: \u001b, \\x9b

std::uint8_t byte_of(char c) { return static_cast<std::uint8_t>(c); }
bool is_plain(char c) { return byte_of(c) >= 0x20 && byte_of(c) < 0x7f && c != '"' && c != '\\'; }

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_character(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// All characters that are not shown are of at most three bytes.
std::uint32_t code_point(std::string_view character) {
  const std::uint8_t lead = byte_of(character[0]);
  if (character.size() == 1) return lead;
  if (character.size() == 2) return (lead & 0x1fu) << 6 | (byte_of(character[1]) & 0x3fu);
  return (lead & 0xfu) << 12 | (byte_of(character[1]) & 0x3fu) << 6 | (byte_of(character[2]) & 0x3fu);
}

char* put_digits(char* at, std::uint32_t value, int digits) {
  for (int i = digits - 1; i >= 0; --i) *at++ = "0123456789abcdef"[value >> (4 * i) & 15];
  return at;
}

char* put_text(char* at, std::string_view text) {
  std::memcpy(at, text.data(), text.size());
  return at + text.size();
}

// One character, or one byte that belongs to none.
char* put_special(char* at, std::string_view& text, bool is_escaped) {
  const std::size_t length = utf8_character(text);
  const std::string_view character = text.substr(0, length == 0 ? 1 : length);
  text.remove_prefix(character.size());
  if (length == 0) return put_digits(put_text(at, "\\\\x"), byte_of(character[0]), 2);
  if (character == "\\") return put_text(at, is_escaped ? "\\\\\\\\" : "\\\\");
  if (character == "\"") return put_text(at, "\\\"");
  if (is_shown(character)) return put_text(at, character);
  return put_digits(put_text(at, "\\u"), code_point(character), 4);
}

}  // namespace

bool add_json_characters(Buffer& out, std::string_view text) {
  const bool is_escaped = !is_utf8(text);
  char* at = out.room(kMostBytes * text.size());
  while (!text.empty()) {
    std::size_t plain = 0;
    while (plain < text.size() && is_plain(text[plain])) ++plain;
    at = put_text(at, text.substr(0, plain));
    text.remove_prefix(plain);
    if (!text.empty()) at = put_special(at, text, is_escaped);
  }
  out.end_at(at);
  return is_escaped;
}

std::string json_of(std::string_view text) {
  Buffer out;
  add_json_text(out, text);
  return std::string(out.view());
}

bool add_json_text(Buffer& out, std::string_view text) {
  out.add("\"");
  const bool is_escaped = add_json_characters(out, text);
  out.add("\"");
  return is_escaped;
}

}  // namespace uprobe::format
