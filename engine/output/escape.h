// SPDX-License-Identifier: MIT
// Makes the bytes of a traced program harmless for a terminal, and for programs that read a trace line by line.
#pragma once

#include <string>
#include <string_view>

namespace uprobe::format {

inline constexpr std::size_t kMostEscaped = 4;  // the most bytes that one byte becomes

// The length of the UTF-8 character at the beginning of a text that is not empty; 0 if there is none, or if it is overlong, a
// surrogate, or beyond U+10FFFF.
std::size_t utf8_character(std::string_view text);
// Whether put_escaped() leaves that character as it is.
bool is_shown(std::string_view character);

// Copies `text` to `at` with control bytes as \n, \t, \r or \x1b. In the same way escapes everything that is not well-formed
// UTF-8, or is a control character there (U+0080 to U+009F), ends a line, or changes the direction of text (U+2028 and the
// like). Quotes and backslashes stay. Needs kMostEscaped * text.size() bytes.
char* put_escaped(char* at, std::string_view text);

// The same as a string.
std::string escaped(std::string_view text);

}  // namespace uprobe::format
