// SPDX-License-Identifier: MIT
#include "engine/program/histogram_fields.h"

#include <algorithm>
#include <array>
#include <set>

namespace uprobe::program {
namespace {

using Names = std::set<std::string, std::less<>>;

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_name(std::string_view text) {
  return !text.empty() && (text[0] < '0' || text[0] > '9') && std::ranges::all_of(text, is_of_name);
}

// What every event has (engine/program/histogram.cpp).
bool is_common(std::string_view name) {
  constexpr std::array kAll = {"hitcount", "cpu", "CPU", "comm", "COMM", "stacktrace", "STACKTRACE"};
  return name.starts_with("common_") || name.starts_with("__probe_") || std::ranges::find(kAll, name) != kAll.end();
}

// Others are variables of histograms, which the kernel has and the tool does not.
bool is_special(std::string_view name) {
  constexpr std::array kAll = {"retval", "latency", "self", "comm", "stack"};
  if (std::ranges::find(kAll, name) != kAll.end()) return true;
  for (const std::string_view numbered : {"arg", "stack"})
    if (name.starts_with(numbered) && name.size() > numbered.size() &&
        name.find_first_not_of("0123456789", numbered.size()) == std::string_view::npos)
      return true;
  return false;
}

// The end of what comes before " if ".
std::size_t end_of(std::string_view text) {
  for (std::size_t at = text.find("if"); at != std::string_view::npos; at = text.find("if", at + 1)) {
    const auto is_blank = [&](std::size_t i) { return i < text.size() && (text[i] == ' ' || text[i] == '\t'); };
    if (at != 0 && is_blank(at - 1) && is_blank(at + 2)) return at;
  }
  return text.size();
}

template <class Visit>
void each_part(std::string_view text, std::string_view separators, const Visit& visit) {
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    visit(text.substr(at, end - at));
    at = end + 1;
  }
}

// Names that the definition gives, and those that its fields have without that.
Names names_in(std::string_view definition) {
  Names names;
  each_part(definition.substr(0, end_of(definition)), " \t(),", [&](std::string_view part) {
    const std::string_view name = part.substr(0, part.find('='));
    if (is_name(name)) names.emplace(name);
  });
  return names;
}

bool is_histogram(std::string_view trigger) {
  return trigger.substr(std::min(trigger.find_first_not_of(" \t"), trigger.size())).starts_with("hist:");
}

class FieldFinder {
 public:
  explicit FieldFinder(std::string_view definition) : definition_(definition), names_(names_in(definition)) {}

  std::string rewrite(std::string_view trigger);
  void find_variables(std::string_view trigger);
  std::string definition() const { return with(fetched_); }
  std::string with_variables() const { return with(fetched_ + variables_); }

 private:
  std::string field_of(std::string_view special);
  std::string with(const std::string& more) const;

  std::string_view definition_;
  Names names_;
  std::string fetched_, variables_;
};

// Before the condition that the definition may have.
std::string FieldFinder::with(const std::string& more) const {
  if (more.empty()) return std::string(definition_);
  const std::size_t end = end_of(definition_);
  std::string_view first = definition_.substr(0, end);
  while (!first.empty() && (first.back() == ' ' || first.back() == '\t')) first.remove_suffix(1);
  const std::string_view rest = definition_.substr(end);
  return std::string(first) + more + (rest.empty() ? "" : " ") + std::string(rest);
}

// Of "latency", for $latency.
std::string FieldFinder::field_of(std::string_view special) {
  std::string name(special);
  for (;; name += '_') {
    const std::string fetch = " " + name + "=$" + std::string(special);
    if ((std::string(definition_) + fetched_ + " ").find(fetch + " ") != std::string::npos) return name;
    if (!names_.emplace(name).second) continue;
    fetched_ += fetch;
    return name;
  }
}

std::string FieldFinder::rewrite(std::string_view trigger) {
  if (!is_histogram(trigger)) return std::string(trigger);
  const std::size_t end = end_of(trigger);
  std::string made;
  for (std::size_t at = 0; at < end;) {
    std::size_t after = at + 1;
    while (trigger[at] == '$' && after < end && is_of_name(trigger[after])) ++after;
    const std::string_view name = trigger.substr(at + 1, after - at - 1);
    made += is_special(name) ? field_of(name) : std::string(trigger.substr(at, after - at));
    at = after;
  }
  return made + std::string(trigger.substr(end));
}

void FieldFinder::find_variables(std::string_view trigger) {
  if (!is_histogram(trigger)) return;
  each_part(trigger.substr(0, end_of(trigger)), ":", [&](std::string_view attribute) {
    const std::size_t equals = attribute.find('=');
    const std::string_view what = attribute.substr(0, equals);
    if (equals == std::string_view::npos || !(what.starts_with("key") || what.starts_with("val"))) return;
    each_part(attribute.substr(equals + 1), ",", [&](std::string_view word) {
      word = word.substr(0, std::min(word.find('.'), word.find_last_not_of(" \t") + 1));
      if (is_name(word) && !is_common(word) && names_.emplace(word).second) variables_ += " " + std::string(word);
    });
  });
}

}  // namespace

HistogramFields fields_for(std::string_view definition, const std::vector<std::string>& triggers) {
  FieldFinder finder(definition);
  HistogramFields made;
  for (const std::string& trigger : triggers) made.triggers.push_back(finder.rewrite(trigger));
  for (const std::string& trigger : made.triggers) finder.find_variables(trigger);
  made.definition = finder.definition(), made.with_variables = finder.with_variables();
  return made;
}

}  // namespace uprobe::program
