// SPDX-License-Identifier: MIT
// Where a place ends: at a blank outside of all brackets, if an argument follows, or nothing that belongs to a name.
#include "engine/spec/bare.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "engine/lex/words.h"
#include "engine/shared/layout.h"
#include "engine/spec/argument.h"
#include "engine/spec/messages.h"
#include "engine/spec/name.h"
#include "engine/spec/place.h"

namespace uprobe::spec {
namespace {

// [begin, end) of the place in the line, and where its arguments begin.
struct Cut {
  std::size_t begin = 0, end = 0, rest = 0;
};

// Without the blanks at its end, which a bracket that is not closed takes in.
std::string_view trimmed(std::string_view word) {
  while (!word.empty() && is_blank(word.back())) word.remove_suffix(1);
  return word;
}

// The word at `at`, to the next blank outside of brackets. A '<' or '>' of an operator's name is no bracket.
std::string_view word_at(std::string_view line, std::size_t at) {
  int depth = 0;
  std::size_t end = at;
  for (; end < line.size() && (depth > 0 || !is_blank(line[end])); ++end) {
    if (line.substr(at, end - at).ends_with(kOperator)) {
      end = line.substr(end, 2) == "()" ? end + 2 : std::min(line.find_first_not_of("<>=-", end), line.size());
      if (end == line.size() || (depth == 0 && is_blank(line[end]))) break;
    }
    const char c = line[end];
    const bool is_arrow = c == '>' && end > at && line[end - 1] == '-';
    if (c == '(' || c == '<' || c == '[' || c == '{') ++depth;
    if ((c == ')' || c == ']' || c == '}' || c == '>') && !is_arrow && depth > 0) --depth;
  }
  return trimmed(line.substr(at, std::min(end, line.size()) - at));
}

bool is_argument(std::string_view word) {
  if (std::string_view("%+-@$\\\"'").find(word[0]) != std::string_view::npos) return true;
  if (word.starts_with("entry(")) return true;
  const std::size_t equals = word.find('=');
  return equals != std::string_view::npos && can_be_argument(word.substr(0, equals)) &&
         word.substr(0, equals) != kOperator;
}

// Whether a word after another one can only be a part of a name: "const" after a parameter list, "ns::f(int)" after a return type.
bool goes_on(std::string_view word) {
  static constexpr std::array<std::string_view, 6> kAfter = {"const", "volatile", "&", "&&", "noexcept", "as"};
  return std::find(kAfter.begin(), kAfter.end(), word) != kAfter.end() || word.starts_with("[clone") ||
         word.find("::") != std::string_view::npos || word.find('(') != std::string_view::npos;
}

Cut cut(std::string_view line) {
  Cut found{.begin = skip_blanks(line, 0), .end = line.size(), .rest = line.size()};
  if (found.begin < line.size() && (line[found.begin] == '\'' || line[found.begin] == '"')) {
    const std::size_t close = line.find(line[found.begin], found.begin + 1);
    const std::size_t begin = skip_blanks(line, found.begin + 1);
    if (close != std::string_view::npos && begin < close)
      return {.begin = begin,
              .end = begin + trimmed(line.substr(begin, close - begin)).size(),
              .rest = skip_blanks(line, close + 1)};
  }
  found.end = found.begin + word_at(line, found.begin).size();
  for (std::size_t at = skip_blanks(line, found.end); at < line.size();) {
    const std::string_view word = word_at(line, at);
    if (word.empty() || is_argument(word)) break;
    const bool is_operators = line.substr(0, found.end).ends_with(kOperator);
    if (goes_on(word) || is_operators) found.end = at + word.size();
    at = skip_blanks(line, at + word.size());
  }
  found.rest = skip_blanks(line, found.end);
  return found;
}

struct Mistake {
  std::size_t at = 0;
  std::string_view message;
};

// A parenthesis that has no other one. In brackets, which a pattern may have, it is a character.
std::optional<Mistake> lone_parenthesis(std::string_view word) {
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '(') open.push_back(i);
    if (word[i] != ')') continue;
    if (open.empty() && word.find('[') == std::string_view::npos) return Mistake{i, message::kUnopenedParenthesis};
    if (!open.empty()) open.pop_back();
  }
  if (open.empty()) return {};
  return Mistake{open.front(), message::kOpenParenthesis};
}

// What cannot be a place, whatever functions there are.
std::optional<Mistake> mistake_in(std::string_view word) {
  if (auto lone = lone_parenthesis(word)) return lone;
  if (word.starts_with("()")) return Mistake{0, message::kNameBeforeParenthesis};
  const bool is_operator = word.find(kOperator) != std::string_view::npos || word.ends_with("++");
  if (word.ends_with('+') && !is_operator) return Mistake{word.size() - 1, message::kBadSymbolOffset};
  return {};
}

// "f + 3": a word that begins with a sign is an argument.
Error with_offset_help(const Command& command, Error error) {
  const bool is_first = command.size() > 2 && error.column >= 0 &&
                        static_cast<std::size_t>(error.column) < command.start(2) + command.word(2).size();
  if (is_first && error.text == message::kNeedBrace)
    error.help = "an offset from a function is written without blanks: " + std::string(command.word(1)) + "+0x4";
  return error;
}

Command words_of(std::string_view line) {
  line = line.substr(0, comment_start(line));
  const Cut found = cut(line);
  return {line, found.begin, found.end, found.rest};
}

// A word of C that is a type, and no name.
bool is_type_of_c(std::string_view word) {
  static constexpr std::array<std::string_view, 11> kTypes = {"void",     "char",  "short",  "int",  "long", "signed",
                                                              "unsigned", "float", "double", "bool", "_Bool"};
  return std::find(kTypes.begin(), kTypes.end(), word) != kTypes.end();
}

// The names in the parentheses at the symbol's end, each perhaps with a type; nothing if there are none, or other things.
std::optional<std::vector<std::string_view>> parameter_names(std::string_view symbol) {
  const std::size_t open = symbol.find('(');
  if (open == 0 || open == std::string_view::npos || !symbol.ends_with(')')) return {};
  std::string_view inside = symbol.substr(open + 1, symbol.size() - open - 2);
  std::vector<std::string_view> names;
  for (bool more = !inside.empty(); more;) {
    const std::size_t comma = inside.find(',');
    std::string_view name = inside.substr(0, comma);
    while (!name.empty() && is_blank(name.front())) name.remove_prefix(1);
    while (!name.empty() && is_blank(name.back())) name.remove_suffix(1);
    if (!is_identifier(name.substr(0, name.find(':'))) || is_type_of_c(name)) return {};
    names.push_back(name);
    more = comma != std::string_view::npos;
    if (more) inside.remove_prefix(comma + 1);
  }
  return names;
}

// Names that cannot be read as arguments (a type twice, as in "f(int, int)") are a parameter list and nothing else.
std::optional<NamedParameters> named_parameters(const ProbeSpec& spec, const ParseOptions& options) {
  const std::string& symbol = spec.place.symbol;
  const auto names = parameter_names(symbol);
  if (!names || spec.place.offset != 0) return {};
  std::string line = "p x";
  for (std::size_t i = 0; i < names->size(); ++i) {
    const std::string_view name = (*names)[i];
    const std::size_t colon = std::min(name.find(':'), name.size());
    line += " " + std::string(name.substr(0, colon)) + (spec.is_return ? "=$entry_arg" : "=$arg") +
            std::to_string(i + 1) + std::string(name.substr(colon));
  }
  auto arguments = parse_arguments(Command(line), {.strict = options.strict,
                                                   .words_2009 = options.words_2009,
                                                   .is_return = spec.is_return,
                                                   .is_function_entry = true});
  if (!arguments) return {};
  for (Argument& argument : *arguments) argument.column = argument.symbol_column = spec.place.place_column;
  return NamedParameters{symbol.substr(0, symbol.find('(')), arguments.take()};
}

}  // namespace

bool starts_as_definition(std::string_view line) {
  line.remove_prefix(skip_blanks(line, 0));
  if (line.empty() || line[0] == '#' || line[0] == '-') return true;
  if (std::string_view("prPR").find(line[0]) == std::string_view::npos) return false;
  const std::size_t after = std::min(line.find_first_not_of("0123456789", 1), line.size());
  return after == line.size() || line[after] == ':' || is_blank(line[after]);
}

Result<ProbeSpec> parse_bare_place(std::string_view line, const ParseOptions& options) {
  const Command command = words_of(line);
  if (command.size() - 2 > shared::kMaxArguments) return command.blame(2, 0, message::kTooManyArguments, E2BIG);
  if (const auto mistake = mistake_in(command.word(1))) return command.blame(1, mistake->at, mistake->message);
  auto spec = parse_words(command, options, false);
  if (!spec) return with_offset_help(command, spec.error());
  if (spec->place.names_object && std::any_of(spec->place.path.begin(), spec->place.path.end(), is_blank))
    return command.blame(1, 0, message::kBlankInPath);
  spec->is_bare = true;
  spec->event = bare_event_name(spec->place, spec->place.symbol);
  spec->parameters = named_parameters(*spec, options);
  return spec;
}

std::string at_return(std::string_view line) {
  if (starts_as_definition(line)) return std::string(line);
  const Cut found = cut(line.substr(0, comment_start(line)));
  std::string text(line);
  if (!line.substr(0, found.end).ends_with(kReturn)) text.insert(found.end, kReturn);
  return text;
}

}  // namespace uprobe::spec
