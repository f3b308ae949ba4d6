// SPDX-License-Identifier: MIT
#include "cli/pairs.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "cli/allocators.h"
#include "cli/foreign_words.h"
#include "cli/usage.h"
#include "engine/export/formats.h"

namespace uprobe::cli {
namespace {

constexpr const char *kNoChoice = "text", *kReport = "pairs", *kJsonReport = "pairs-json";
constexpr const char* kStack = "stacktrace";
constexpr std::string_view kMalloc = "malloc", kLeakGroup = "leak/";

// The time that a hit of --leak and --pair waits for room in the rings: a report with hits missing would be wrong.
constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(10);

void add_source(Options& options, std::string text, bool has_stack) {
  while (text.ends_with(' ')) text.pop_back();
  options.sources.push_back(
      {.kind = ProbeSource::Kind::definition, .text = std::move(text), .default_object = options.object});
  if (has_stack) options.sources.back().triggers.emplace_back(kStack);
}

void add_allocator(Options& options, const Allocator& one, const std::string& object) {
  const std::string name = one.name, place = name == "execve" || name == kThrows ? name : object + name;
  const bool has_both = one.at_entry != nullptr && one.at_return != nullptr;
  if (one.at_entry != nullptr)
    add_source(options, "p:leak/" + name + (has_both ? "_begins " : " ") + place + " " + one.at_entry, false);
  if (one.at_return != nullptr)
    add_source(options, "r:leak/" + name + " " + place + " " + one.at_return, *one.at_return != '\0');
  if (one.at_entry == kTaken) options.sources.back().filter = "key != 0";
}

// A function and what is fetched there.
struct End {
  std::string place, key, size;
};

// The key begins after the first colon that comes before a fetch.
End end_of(std::string_view text) {
  for (std::size_t at = text.find(':'); at != std::string_view::npos; at = text.find(':', at + 1)) {
    const std::string_view rest = text.substr(at + 1);
    if (rest.empty() ||
        (std::string_view("$%+-").find(rest.front()) == std::string_view::npos && !rest.starts_with("entry(")))
      continue;
    const std::size_t slash = rest.find('/');
    const std::string_view size = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
    return {std::string(trimmed(text.substr(0, at))), std::string(trimmed(rest.substr(0, slash))),
            std::string(trimmed(size))};
  }
  return {};
}

// At a return: values of the entry are those of the call.
std::string at_return(const std::string& fetch) {
  if (fetch.find("$retval") != std::string::npos || fetch.find("entry(") != std::string::npos) return fetch;
  const std::size_t colon = fetch.rfind(':');
  return colon == std::string::npos ? "entry(" + fetch + ")"
                                    : "entry(" + fetch.substr(0, colon) + ")" + fetch.substr(colon);
}

bool has_blank(const End& end) { return (end.place + end.key + end.size).find(' ') != std::string::npos; }

// The name of the function of an event of --leak: "r:leak/realloc libc:realloc ..." and "p:leak/realloc_begins ..."; else
// empty.
std::string_view allocator_in(std::string_view definition) {
  if (definition.size() < 2 || !definition.substr(2).starts_with(kLeakGroup)) return {};
  const std::string_view event = definition.substr(2 + kLeakGroup.size());
  const std::string_view name = event.substr(0, event.find(' '));
  return name.substr(0, name.ends_with("_begins") ? name.size() - 7 : name.size());
}

bool is_optional(std::string_view name) {
  return std::ranges::any_of(kAllocators, [&](const Allocator& one) { return name == one.name && !one.is_needed; });
}

bool is_in_library(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  return name.starts_with("libstdc++.so") || name.starts_with("libc++.so");
}

// Whether there are probes besides those of pairs.
bool has_others(const Options& options) {
  const auto is_other = [](const ProbeSource& source) {
    const std::string_view group =
        source.text.size() < 2 ? std::string_view() : std::string_view(source.text).substr(2);
    return !group.starts_with(kLeakGroup) && !group.starts_with("pair");
  };
  return std::ranges::any_of(options.sources, is_other);
}

void leave_out(const std::function<bool(std::string_view)>& is_meant, SessionOptions& options,
               Definitions& definitions) {
  for (std::size_t i = options.definitions.size(); i-- != 0;) {
    if (!is_meant(allocator_in(options.definitions[i].text))) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    options.definitions.erase(options.definitions.begin() + at);
    definitions.list.erase(definitions.list.begin() + at);
    definitions.places.erase(definitions.places.begin() + at);
  }
}

// Whether the program, or an allocator of its own, has C++'s forms. They are asked for by the first of them alone.
bool has_own_new(const SessionOptions& options, const Preparer& preparer) {
  const auto is_other = [](const Definition& one) { return allocator_in(one.text) != kNew; };
  if (std::ranges::all_of(options.definitions, is_other)) return false;  // as without --leak: nothing is copied
  SessionOptions alone = options;
  std::erase_if(alone.definitions, is_other);
  if (!preparer.prepare(alone)) return false;
  return std::ranges::none_of(preparer.report(), [](const PlanReport& one) { return is_in_library(one.path); });
}

}  // namespace

Status add_leak(Options& options, const std::string& value) {
  const bool is_place = value.ends_with(":" + std::string(kMalloc));
  if (value != kMalloc && !is_place)
    return usage("'" + value + "' is not a family of functions that allocate", "malloc, or OBJECT:malloc");
  if (options.finds_leaks) return usage("leaks are looked for once in a session");
  options.finds_leaks = true;
  const std::string object = value.substr(0, value.size() - kMalloc.size());
  for (const Allocator& one : kAllocators) add_allocator(options, one, object);
  return ok();
}

Status add_pair(Options& options, const std::string& value) {
  const std::size_t arrow = value.find("->");
  const End first = end_of(std::string_view(value).substr(0, std::min(arrow, value.size())));
  const End last = arrow == std::string::npos ? End{} : end_of(std::string_view(value).substr(arrow + 2));
  if (first.key.empty() || last.key.empty() || first.place.empty() || last.place.empty() || !last.size.empty() ||
      has_blank(first) || has_blank(last))
    return usage("'" + value + "' is not a pair",
                 "OPENING:KEY[/SIZE] -> CLOSING:KEY, as in 'open:$retval:s32 -> close:$arg1:s32'");
  const std::string group = "pair" + (options.pairs == 0 ? "" : std::to_string(options.pairs + 1));
  ++options.pairs;
  const std::string size = first.size.empty() ? "" : " size=" + at_return(first.size);
  add_source(options, "r:" + group + "/open " + first.place + " key=" + at_return(first.key) + size, true);
  add_source(options, "p:" + group + "/close " + last.place + " key=" + last.key, false);
  return ok();
}

Status settle_pairs(Options& options) {
  if (!options.finds_leaks && options.pairs == 0) return ok();
  const std::string option = options.finds_leaks ? "--leak" : "--pair";
  const auto refused_with = [&](const std::string& what) { return usage(option + " does not go with " + what); };
  if (options.mode == Mode::replay)
    return usage("a recording has its probes already", "--replay=FILE --format=" + std::string(kReport));
  if (!is_for_a_run(options)) return usage(option + " is about a program that runs");
  if (!options.overflow.is_given) options.overflow.patience = kPatience;
  if (options.calls != CallSums::none) return refused_with("-c, which records nothing, and -C");
  if (options.one_in != 0 || options.per_second != 0 || options.min_latency.count() != 0)
    return refused_with("--sample, --rate and --min-latency: all calls have to be seen");
  if (records(options)) return ok();
  if (options.format != kNoChoice && options.format != kReport && options.format != kJsonReport) return ok();
  if (has_others(options)) return refused_with("-p, -r and the like: it prints a report, and no trace");
  options.format = options.json || options.format == kJsonReport ? kJsonReport : kReport;
  return ok();
}

void choose_allocators(SessionOptions& options, Definitions& definitions, const Preparer& preparer) {
  if (!has_own_new(options, preparer)) leave_out(is_of_cpp, options, definitions);
}

Status prepare_pairs(SessionOptions& options, Definitions& definitions, const Preparer& preparer,
                     const Diagnostics& diagnostics) {
  for (;;) {
    Status prepared = preparer.prepare(options);
    const auto number = static_cast<std::size_t>(prepared ? 0 : prepared.error().definition);
    if (prepared || number >= options.definitions.size()) return prepared;
    const std::string name(allocator_in(options.definitions[number].text));
    const bool is_absent = prepared.error().code == Code::not_found;
    if (name.empty() || name == kMalloc || !(is_absent || is_optional(name))) return prepared;
    if (!is_absent) diagnostics.line("--leak does not follow " + name + ": " + prepared.error().text);
    leave_out([&](std::string_view one) { return one == name; }, options, definitions);
  }
}

}  // namespace uprobe::cli
