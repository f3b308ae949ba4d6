// SPDX-License-Identifier: MIT
#include "engine/program/histogram_fields.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "engine/lex/words.h"
#include "engine/program/trigger.h"
#include "engine/spec/condition.h"
#include "engine/spec/definition_set.h"

namespace uprobe::program {
namespace {

// The fields of a definition, and what they fetch where that is known before places are looked up.
using Fields = std::map<std::string, std::string, std::less<>>;

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
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

template <class Visit>
void each_part(std::string_view text, std::string_view separators, const Visit& visit) {
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    visit(text.substr(at, end - at));
    at = end + 1;
  }
}

// None of a definition that is refused. No file is looked at, so any object will do.
Fields fields_in(std::string_view definition) {
  spec::DefinitionSet set({.default_object = "/object", .file_check = {}});
  Fields fields;
  if (!set.add(definition)) return fields;
  for (const auto& [id, probe] : set.by_id()) {
    for (const spec::Argument& argument : probe.arguments) fields.emplace(argument.name, argument.body);
    if (probe.parameters)
      for (const spec::Argument& argument : probe.parameters->arguments) fields.emplace(argument.name, argument.body);
    for (const spec::WrittenArgument& argument : probe.written) {
      const std::size_t equals = argument.text.find('=');
      if (equals != std::string::npos)
        fields.emplace(argument.text.substr(0, equals), argument.text.substr(equals + 1));
    }
  }
  return fields;
}

// The attributes of a trigger: [begin, end) of its text. Empty: it is no histogram, or one that is refused.
struct Attributes {
  std::size_t begin = 0, end = 0;
};
Attributes attributes_of(std::string_view trigger) {
  const auto spec = parse_trigger(trigger);
  if (!spec || spec->kind != shared::TriggerKind::histogram) return {};
  return {spec->attributes_at, spec->attributes_end};
}

class FieldFinder {
 public:
  explicit FieldFinder(std::string_view definition) : definition_(definition), fields_(fields_in(definition)) {}

  std::string rewrite(std::string_view trigger);
  void find_variables(std::string_view trigger);
  std::string definition() const { return spec::with_words(definition_, fetched_); }
  std::string with_variables() const { return spec::with_words(definition_, fetched_ + variables_); }

 private:
  std::string field_of(std::string_view special);

  std::string_view definition_;
  Fields fields_;
  std::string fetched_, variables_;
};

// Of "latency", for $latency.
std::string FieldFinder::field_of(std::string_view special) {
  const std::string fetch = "$" + std::string(special);
  for (std::string name(special);; name += '_') {
    const auto [known, is_new] = fields_.emplace(name, fetch);
    if (is_new) fetched_ += " " + name + "=" + fetch;
    if (known->second == fetch) return name;
  }
}

std::string FieldFinder::rewrite(std::string_view trigger) {
  const Attributes part = attributes_of(trigger);
  std::string made(trigger.substr(0, part.begin));
  for (std::size_t at = part.begin; at < part.end;) {
    std::size_t after = at + 1;
    while (trigger[at] == '$' && after < part.end && is_of_name(trigger[after])) ++after;
    const std::string_view name = trigger.substr(at + 1, after - at - 1);
    made += is_special(name) ? field_of(name) : std::string(trigger.substr(at, after - at));
    at = after;
  }
  return made + std::string(trigger.substr(part.end));
}

void FieldFinder::find_variables(std::string_view trigger) {
  const Attributes part = attributes_of(trigger);
  each_part(trigger.substr(part.begin, part.end - part.begin), ":", [&](std::string_view attribute) {
    const std::size_t equals = attribute.find('=');
    const std::string_view what = attribute.substr(0, equals);
    if (equals == std::string_view::npos || !(what.starts_with("key") || what.starts_with("val"))) return;
    each_part(attribute.substr(equals + 1), ",", [&](std::string_view word) {
      const std::string name(word.substr(0, std::min(word.find('.'), word.find_last_not_of(" \t") + 1)));
      if (spec::is_identifier(name) && !is_common(name) && fields_.emplace(name, name).second) variables_ += " " + name;
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
