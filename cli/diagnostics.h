// SPDX-License-Identifier: MIT
// What the tool says to its user: "uprobe-run: PLACE: what is wrong", the definition with a caret, one line of help.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace uprobe::cli {

enum class ColorMode { automatic, always, never };

// What decides about colour when the user does not: the stream and the environment (null: variable not set).
struct ColorFacts {
  bool terminal = false;
  const char* no_color = nullptr;
  const char* term = nullptr;
};

bool use_color(ColorMode mode, const ColorFacts& facts);
bool use_color(ColorMode mode, int fd);  // with the facts of this process

// The definition that an error belongs to, when that is known.
struct Context {
  std::string place;       // "-p", "probes.txt:3"; empty: not about a definition
  std::string definition;  // shown below the first line
};

// All lines of one error, each ended. Whatever comes from outside is escaped; a long definition is cut around the
// caret.
std::string render_error(const Error& error, const Context& context, bool color);

// "uprobe-run: TEXT\n"; `text` is escaped.
std::string render_line(std::string_view text, bool color);

// Where diagnostics go. A failing write is nobody's to report: there is no other place to say so.
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
