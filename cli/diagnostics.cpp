// SPDX-License-Identifier: MIT
// Prints errors. See diagnostics.h.
#include "cli/diagnostics.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <vector>

#include "cli/output.h"
#include "cli/text.h"

namespace uprobe::cli {

namespace {

// A definition is shown in at most this many columns; on an 80-column terminal the indented line still fits.
constexpr std::size_t kShownColumns = 76;
constexpr std::string_view kIndent = "  ";
constexpr std::string_view kCut = "...";

constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kBoldRed = "\x1b[1;31m";
constexpr std::string_view kPlain = "\x1b[0m";

std::string painted(std::string_view text, std::string_view paint, bool color) {
  if (!color) return std::string(text);
  return std::string(paint) + std::string(text) + std::string(kPlain);
}

std::string prefix(bool color) { return painted("uprobe-run:", kBold, color) + " "; }

// The shown part [first, last) of the glyphs.
struct Window {
  std::size_t first = 0;
  std::size_t last = 0;
};

std::size_t width_of(const std::vector<Glyph>& line, Window part) {
  std::size_t width = 0;
  for (std::size_t i = part.first; i < part.last; ++i) width += line[i].width;
  return width;
}

// Grows to both sides of the caret in turn, as long as there are columns left.
Window window_around(const std::vector<Glyph>& line, std::size_t caret) {
  if (width_of(line, {0, line.size()}) <= kShownColumns) return {0, line.size()};
  Window part{caret, caret};
  std::size_t left = kShownColumns - 2 * kCut.size();
  for (bool grew = true; grew;) {
    grew = false;
    if (part.last < line.size() && line[part.last].width <= left) left -= line[part.last++].width, grew = true;
    if (part.first > 0 && line[part.first - 1].width <= left) left -= line[--part.first].width, grew = true;
  }
  return part;
}

std::size_t glyph_at_byte(const std::vector<Glyph>& line, int column) {
  std::size_t index = 0;
  while (index + 1 < line.size() && line[index + 1].byte <= static_cast<std::size_t>(column)) ++index;
  const bool is_after_line =
      !line.empty() && static_cast<std::size_t>(column) >= line.back().byte + line.back().text.size();
  return is_after_line ? line.size() : index;
}

// The definition, and below it the caret when there is a column.
std::string quotation(std::string_view definition, int column, bool color) {
  const std::vector<Glyph> line = glyphs(definition);
  const std::size_t caret = column < 0 ? 0 : glyph_at_byte(line, column);
  const Window part = window_around(line, caret);
  std::string text(kIndent);
  if (part.first > 0) text += kCut;
  for (std::size_t i = part.first; i < part.last; ++i) text += line[i].text;
  if (part.last < line.size()) text += kCut;
  text += '\n';
  if (column < 0) return text;
  const std::size_t before = width_of(line, {part.first, caret}) + (part.first > 0 ? kCut.size() : 0);
  return text + std::string(kIndent) + std::string(before, ' ') + painted("^", kBoldRed, color) + "\n";
}

bool is_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Whether a text has the name, and not only within a longer word.
bool names(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string_view::npos; ++at) {
    const std::size_t end = at + name.size();
    const bool begins = at == 0 || !is_of_word(text[at - 1]) || !is_of_word(name.front());
    if (begins && (end == text.size() || !is_of_word(text[end]) || !is_of_word(name.back()))) return true;
  }
  return false;
}

// "PLACE: ", unless the text already names the place.
std::string place_of(const Error& error, const Context& context) {
  std::string place;
  if (!context.place.empty()) place += escape(context.place) + ": ";
  const bool is_definition = error.column >= 0 || error.where == context.definition;
  if (error.where.empty() || is_definition || names(error.text, error.where)) return place;
  return place + escape(error.where) + ": ";
}

}  // namespace

bool use_color(ColorMode mode, const ColorFacts& facts) {
  if (mode != ColorMode::automatic) return mode == ColorMode::always;
  const bool declined = facts.no_color != nullptr && *facts.no_color != '\0';
  const bool dumb = facts.term == nullptr || *facts.term == '\0' || std::string_view(facts.term) == "dumb";
  return facts.terminal && !declined && !dumb;
}

bool use_color(ColorMode mode, int fd) {
  return use_color(mode, ColorFacts{::isatty(fd) == 1, std::getenv("NO_COLOR"), std::getenv("TERM")});
}

std::string render_error(const Error& error, const Context& context, bool color) {
  std::string text = prefix(color) + place_of(error, context) + escape(error.text) + "\n";
  const std::string& definition = error.column >= 0 && !error.where.empty() ? error.where : context.definition;
  if (!definition.empty()) text += quotation(definition, error.column, color);
  if (!error.help.empty()) text += std::string(kIndent) + escape(error.help) + "\n";
  return text;
}

std::string render_line(std::string_view text, bool color) { return prefix(color) + escape(text) + "\n"; }

void Diagnostics::error(const Error& error, const Context& context) const {
  print(render_error(error, context, color_));
}

void Diagnostics::line(std::string_view text) const { print(render_line(text, color_)); }

void Diagnostics::print(const std::string& rendered) const { static_cast<void>(write_patiently(fd_, rendered)); }

}  // namespace uprobe::cli
