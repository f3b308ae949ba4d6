// SPDX-License-Identifier: MIT
#include "cli/foreign_fetches.h"

#include <algorithm>
#include <array>

#include "cli/foreign_words.h"
#include "engine/spec/bare.h"
#include "engine/spec/place.h"

namespace uprobe::cli {
namespace {

constexpr std::string_view kIf = " if ";

// "sdt:GROUP:NAME", "PATH:mark:GROUP:NAME": all of its arguments are recorded.
bool records_all(std::string_view place) {
  const auto has = [&](std::string_view kind) {
    return place.starts_with(kind) || place.find(":" + std::string(kind)) != std::string_view::npos;
  };
  return has(std::string(spec::kMarker) + ":") || has(std::string(spec::kMark) + ":");
}

bool is_of_all(const std::string& name) { return name == "comm" || name == "common_pid" || name == "cpu"; }

// A field of this name, at a return.
std::string field_of(const std::string& name, bool is_return) {
  if (is_return && name == "retval") return "retval=$retval";
  return is_return && name == "latency" ? "$latency" : name;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// "f $retval if $retval > 3": the field of the value has a name, and a condition names fields.
std::string with_named_values(const std::string& place, std::size_t condition) {
  std::string fetches = place.substr(0, condition), asked = place.substr(condition);
  if (asked.find("$retval") == std::string::npos && asked.find("$latency") == std::string::npos) return place;
  asked = replaced(replaced(std::move(asked), "$retval", "retval"), "$latency", "latency");
  if (const std::size_t at = fetches.find(" $retval");
      at != std::string::npos && fetches.find("retval=") == std::string::npos)
    fetches.insert(at + 1, "retval=");
  return fetches + asked;
}

struct Split {
  std::string_view head, rest;
};

// A place that holds no blanks, and what follows it; nothing for definitions of ftrace's and what follows none.
std::optional<Split> split_place(std::string_view text) {
  const std::size_t blank = text.find(' ');
  if (blank == std::string_view::npos || spec::starts_as_definition(text)) return {};
  const std::string_view head = text.substr(0, blank);
  const bool is_plain = std::all_of(head.begin(), head.end(), [](char c) {
    return is_word(c) || std::string_view("./:%-+@*").find(c) != std::string_view::npos;
  });
  if (!is_plain) return {};
  return Split{head, trimmed(text.substr(blank))};
}

bool compares(std::string_view word) {
  static constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  return std::find(kOperators.begin(), kOperators.end(), word) != kOperators.end();
}

}  // namespace

std::string with_fields(const std::string& given) {
  std::size_t condition = given.find(kIf);
  if (condition == std::string::npos || records_all(std::string_view(given).substr(0, condition))) return given;
  const bool is_return = given.substr(0, condition).find("%return") != std::string::npos;
  std::string place = is_return ? with_named_values(given, condition) : given;
  condition = place.find(kIf);
  const std::size_t open = place.find('('), close = place.rfind(')', condition);
  const bool has_names = open < condition && close != std::string::npos && close + 1 == condition;
  if (!has_names && place.find(' ') != condition) return place;
  const auto known =
      has_names ? names_in(std::string_view(place).substr(open, close - open)) : std::vector<std::string>();
  std::string fields;
  for (const std::string& name : names_in(without_texts(std::string_view(place).substr(condition + kIf.size()))))
    if (!is_of_all(name) && std::find(known.begin(), known.end(), name) == known.end())
      fields += " " + field_of(name, is_return);
  return place.substr(0, condition) + fields + place.substr(condition);
}

std::optional<Meant> of_listed_values(std::string_view text) {
  const auto parts = split_place(text);
  if (!parts || parts->head.find(',') != std::string_view::npos || parts->rest.find(',') == std::string_view::npos)
    return {};
  const bool is_list = std::all_of(parts->rest.begin(), parts->rest.end(),
                                   [](char c) { return is_word(c) || c == ',' || c == ' ' || c == '$' || c == '%'; });
  if (!is_list || parts->head.ends_with(':')) return {};
  std::string values = replaced(std::string(parts->rest), ",", " ");
  for (std::size_t at = 0; (at = values.find("  ")) != std::string::npos;) values.erase(at, 1);
  return Meant{.places = {std::string(parts->head) + " " + std::string(trimmed(values))},
               .problem = "values stand after a place with blanks between them"};
}

std::optional<Meant> of_bare_condition(std::string_view text) {
  const auto parts = split_place(text);
  if (!parts || text.find(kIf) != std::string_view::npos) return {};
  std::string_view rest = parts->rest;
  for (const std::string_view word : {"where ", "when ", "filter "})
    if (rest.starts_with(word)) rest = trimmed(rest.substr(word.size()));
  if (rest.size() > 2 && rest.starts_with('/') && rest.ends_with('/')) rest = trimmed(rest.substr(1, rest.size() - 2));
  const std::size_t blank = std::min(rest.find(' '), rest.size());
  std::string_view name = rest.substr(0, blank);
  if (name.starts_with('$')) name.remove_prefix(1);
  const std::string_view after = trimmed(rest.substr(blank));
  if (!is_name(name) || !compares(after.substr(0, after.find(' '))) || after.find(' ') == std::string_view::npos)
    return {};
  return Meant{.places = {with_fields(std::string(parts->head) + std::string(kIf) + std::string(rest))},
               .problem = "a condition stands after ' if '"};
}

std::optional<Meant> of_bracketed_values(std::string_view text) {
  const auto parts = split_place(text);
  if (!parts) return {};
  const bool is_bracketed = (parts->rest.starts_with('{') && parts->rest.ends_with('}')) ||
                            (parts->rest.starts_with('[') && parts->rest.ends_with(']'));
  const bool is_plain = std::all_of(parts->rest.begin(), parts->rest.end(), [](char c) {
    return is_word(c) || std::string_view("{}[] ,$%").find(c) != std::string_view::npos;
  });
  const std::vector<std::string> names = names_in(parts->rest);
  if (!is_bracketed || !is_plain || names.empty()) return {};
  std::string place(parts->head);
  for (const std::string& name : names) place += " " + name;
  return Meant{.places = {std::move(place)}, .problem = "values stand after a place with blanks between them"};
}

}  // namespace uprobe::cli
