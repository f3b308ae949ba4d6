// SPDX-License-Identifier: MIT
// Cutting a line into words. Linear in the line; nothing here can fail.
#include "engine/lex/words.h"

#include <algorithm>

namespace uprobe::spec {
namespace {

bool is_word_character(char c) { return is_digit(c) || is_letter(c) || c == '_'; }

bool separates(char c, Blanks blanks) { return is_blank(c) || (blanks == Blanks::kernel && c == '\xa0'); }

// The kind of failure, from the kernel's errno.
Code code_of(int err) {
  switch (err) {
    case E2BIG:
      return Code::limit;
    case ENOENT:
    case ENOTDIR:
      return Code::not_found;
    case EACCES:
    case ELOOP:
    case EIO:
      return Code::system;
    default:
      return Code::usage;
  }
}

}  // namespace

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The bytes of a UTF-8 sequence after the first are below 0xC0, so names in UTF-8 fail at their second byte.
bool is_letter(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0xc0 && byte != 0xd7 && byte != 0xf7;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t skip_blanks(std::string_view line, std::size_t at) {
  while (at < line.size() && is_blank(line[at])) ++at;
  return at;
}

bool is_identifier(std::string_view text) {
  if (text.empty() || is_digit(text[0])) return false;
  for (const char c : text) {
    if (!is_letter(c) && !is_digit(c) && c != '_') return false;
  }
  return true;
}

std::size_t distance_start(std::string_view symbol) {
  const std::size_t sign = symbol.find_last_of("+-");
  if (sign == std::string_view::npos || sign + 1 == symbol.size() || !is_digit(symbol[sign + 1])) return symbol.size();
  const std::string_view number = symbol.substr(sign + 1);
  return std::all_of(number.begin(), number.end(), is_word_character) ? sign : symbol.size();
}

std::size_t comment_start(std::string_view line, Blanks blanks) {
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    const std::size_t number = line.find_first_not_of("0123456789", at + 1);
    const bool is_name = at != 0 && !is_blank(line[at - 1]) && number != at + 1 && number != std::string_view::npos &&
                         line[number] == '}';
    if (blanks == Blanks::kernel || !is_name) return at;
  }
  return line.size();
}

Command::Command(std::string_view line, Blanks blanks) {
  take_words(line.substr(0, comment_start(line, blanks)), blanks);
}

Command::Command(std::string_view line, std::size_t begin, std::size_t end, std::size_t rest)
    : text_(line.substr(0, rest)), words_{{0, 0}, {begin, end - begin}} {
  while (text_.size() > end && is_blank(text_.back())) text_.pop_back();
  take_words(line.substr(rest), Blanks::ascii);
}

void Command::take_words(std::string_view line, Blanks blanks) {
  std::size_t at = 0;
  while (at < line.size()) {
    if (separates(line[at], blanks)) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && !separates(line[end], blanks)) ++end;
    if (!words_.empty()) text_ += ' ';
    words_.push_back({text_.size(), end - at});
    text_.append(line.substr(at, end - at));
    at = end;
  }
}

std::string_view Command::word(std::size_t index) const {
  const Word& word = words_[index];
  return std::string_view(text_).substr(word.start, word.length);
}

// After the last word the kernel counts the blank that follows it, and one more.
std::size_t Command::start(std::size_t index) const {
  return index < words_.size() ? words_[index].start : text_.size() + 1;
}

Error Command::blame(std::size_t index, std::size_t offset, std::string_view message, int err) const {
  return Error{.code = code_of(err),
               .text = std::string(message),
               .where = text_,
               .column = static_cast<int>(start(index) + offset),
               .err = err};
}

}  // namespace uprobe::spec
