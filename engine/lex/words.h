// SPDX-License-Identifier: MIT
// Characters as the kernel sees them, and a definition cut into words.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace uprobe::spec {

// The kernel's character classes are Latin-1 and know no locale.
bool is_blank(char c);   // ASCII white space
bool is_letter(char c);  // ASCII, and 0xC0..0xFF without the two signs 0xD7 and 0xF7
bool is_digit(char c);

// Where the next word begins, at `at` or after it; the line's end if there is none.
std::size_t skip_blanks(std::string_view line, std::size_t at);

// [A-Za-z_][A-Za-z0-9_]* with the kernel's idea of a letter.
bool is_identifier(std::string_view text);

// Where "+OFFS" or "-OFFS" starts at the end of a symbol: the last sign that a number follows up to the end. The sign of
// "operator-" or of "array<-1>" does not count.
std::size_t distance_start(std::string_view symbol);

enum class Blanks {
  ascii,
  kernel,  // also byte 0xA0 (a no-break space in Latin-1), which cuts UTF-8 words such as "voilà" in two
};

// Where a line's comment begins, at a '#'; the line's end if it has none. Unlike in the kernel, "{lambda(int)#1}" is a name of
// C++.
std::size_t comment_start(std::string_view line, Blanks blanks = Blanks::ascii);

// The words of one line, its comment removed, and the same joined by single blanks: the text in which columns count.
class Command {
 public:
  explicit Command(std::string_view line, Blanks blanks = Blanks::ascii);
  // Of a line without a first word: word 0 is empty, word 1 is [begin, end) with its blanks, the others follow from `rest` on.
  Command(std::string_view line, std::size_t begin, std::size_t end, std::size_t rest);

  const std::string& text() const { return text_; }
  std::size_t size() const { return words_.size(); }
  std::string_view word(std::size_t index) const;
  std::size_t start(std::size_t index) const;  // column; of a word past the end: where the kernel puts its caret

  // An error with its caret under `offset` of a word.
  Error blame(std::size_t index, std::size_t offset, std::string_view message, int err = EINVAL) const;

 private:
  struct Word {
    std::size_t start, length;
  };
  void take_words(std::string_view line, Blanks blanks);

  std::string text_;
  std::vector<Word> words_;
};

}  // namespace uprobe::spec
