// SPDX-License-Identifier: MIT
// The tool's messages: "uprobe-run: PLACE: what is wrong", the definition with a caret, one line of help.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace uprobe::cli {

enum class ColorMode { automatic, always, never };

// The facts that decide about colour when the user does not: the stream and the environment (null: variable not set).
struct ColorFacts {
  bool terminal = false;
  const char* no_color = nullptr;
  const char* term = nullptr;
};

bool use_color(ColorMode mode, const ColorFacts& facts);
bool use_color(ColorMode mode, int fd);  // with the facts of this process

// The definition that an error belongs to, when that is known.
struct Context {
  std::string place;       // "-p", "probes.txt:3"; empty: the error is not about a definition
  std::string definition;  // shown below the first line
};

// All lines of one error, each with its newline. Text from outside is escaped; of a long definition the part around the caret
// is shown.
std::string render_error(const Error& error, const Context& context, bool color);

// "uprobe-run: TEXT\n"; `text` is escaped.
std::string render_line(std::string_view text, bool color);

// The destination of diagnostics. A failing write is ignored: there is no other place to report it.
class Diagnostics {
 public:
  Diagnostics(int fd, bool color) : fd_(fd), color_(color) {}
  bool color() const { return color_; }
  void error(const Error& error, const Context& context = {}) const;
  void line(std::string_view text) const;
  void print(const std::string& rendered) const;

 private:
  int fd_;
  bool color_;
};

}  // namespace uprobe::cli
