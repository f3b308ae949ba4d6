// SPDX-License-Identifier: MIT
// Strings of JSON (RFC 8259) from any bytes.
#pragma once

#include <string>
#include <string_view>

#include "engine/output/buffer.h"

namespace uprobe::format {

// Adds `text` with its quotes. Characters that a terminal or a reader of lines must not see (escape.h) become \u00XX, so the
// result is text of one line and, once read, the same characters. Bytes that are not UTF-8 become \xXX, as characters of
// the string; in such a string each backslash of the text is doubled, and the function returns true.
bool add_json_text(Buffer& out, std::string_view text);

// The same as a string of its own.
std::string json_of(std::string_view text);

// The same for text that is part of a longer string: without quotes.
bool add_json_characters(Buffer& out, std::string_view text);

}  // namespace uprobe::format
