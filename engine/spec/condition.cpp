// SPDX-License-Identifier: MIT
#include "engine/spec/condition.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include "engine/lex/words.h"
#include "engine/spec/messages.h"

namespace uprobe::spec {
namespace {

constexpr std::string_view kIf = "if";

// The place of the word: not the first word, and not in a comment. npos: there is none.
std::size_t find_if(std::string_view line) {
  line = line.substr(0, comment_start(line));
  for (std::size_t at = skip_blanks(line, 0), first = at; at < line.size(); at = skip_blanks(line, at)) {
    std::size_t end = at;
    while (end < line.size() && !is_blank(line[end])) ++end;
    if (at != first && line.substr(at, end - at) == kIf) return at;
    at = end;
  }
  return std::string_view::npos;
}

std::size_t comment_after(std::string_view line, std::size_t at) {
  for (char quote = '\0'; at < line.size(); ++at) {
    const char c = line[at];
    if (quote == '\0' && c == '#') return at;
    if (quote == '\0' && (c == '"' || c == '\''))
      quote = c;
    else if (c == quote)
      quote = '\0';
  }
  return line.size();
}

}  // namespace

Result<Conditional> split_condition(std::string_view line, bool strict) {
  const std::size_t at = strict ? std::string_view::npos : find_if(line);
  if (at == std::string_view::npos) return Conditional{.definition = line, .line = line};
  const std::size_t from = skip_blanks(line, at + kIf.size());
  std::size_t end = comment_after(line, from);
  while (end > from && is_blank(line[end - 1])) --end;
  line = line.substr(0, end);
  if (from >= end)
    return Error{.text = std::string(message::kNoCondition),
                 .where = std::string(line.substr(0, at + kIf.size())),
                 .column = static_cast<int>(at + kIf.size()),
                 .err = EINVAL};
  return Conditional{.definition = line.substr(0, at), .line = line, .filter = line.substr(from), .filter_at = from};
}

std::string with_words(std::string_view line, std::string_view words) {
  if (words.empty()) return std::string(line);
  const std::size_t end = std::min(find_if(line), comment_start(line));
  std::size_t last = end;
  while (last > 0 && is_blank(line[last - 1])) --last;
  const std::string_view rest = line.substr(end);
  return std::string(line.substr(0, last)).append(words).append(rest.empty() ? "" : " ").append(rest);
}

}  // namespace uprobe::spec
