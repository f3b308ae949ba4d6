// SPDX-License-Identifier: MIT
#include "engine/marker/marker_event.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "engine/base/text.h"
#include "engine/marker/arguments.h"
#include "engine/marker/marks.h"
#include "engine/spec/argument.h"
#include "engine/spec/name.h"

namespace uprobe::marker {
namespace {

using spec::Argument;
using spec::ProbeSpec;
using spec::WrittenArgument;

std::string name_in_event(const std::string& name) { return spec::symbol_event_name({.path = {}, .symbol = name}); }

bool matches(const std::string& pattern, const std::string& name) {
  return pattern == name || ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// Finds events by name and places by offset: a hostile file has as many as it likes.
class EventsByName {
 public:
  EventsByName(std::vector<MarkerEvent>& events, const elf::ElfFile& file) : events_(events) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      const MarkerEvent& one = events[i];
      numbers_[{one.group, one.also.empty() ? one.event : one.also, one.format}] = i;
      names_.insert({one.group, one.event});
      for (const MarkerPlace& place : events[i].places)
        if (place.file->identity() == file.identity()) places_.insert({i, place.marker.offset});
    }
  }
  // Not if the event has the place already.
  void add(const std::string& group, const std::string& event, MarkerPlace place) {
    const std::string format = place.marker.format;
    const auto [at, is_new] = numbers_.try_emplace({group, event, format}, events_.size());
    if (is_new) {
      const std::string name = unused_name(group, event);
      events_.push_back(
          {.group = group, .event = name, .format = format, .also = name == event ? "" : event, .places = {}});
    }
    if (places_.insert({at->second, place.marker.offset}).second)
      events_[at->second].places.push_back(std::move(place));
  }

 private:
  std::string unused_name(const std::string& group, const std::string& event) {
    std::size_t& number = last_numbers_[{group, event}];
    std::string name = ++number == 1 ? event : with_number(event, number);
    while (!names_.insert({group, name}).second) name = with_number(event, ++number);
    return name;
  }
  static std::string with_number(const std::string& event, std::size_t number) {
    const std::string end = "_" + std::to_string(number);
    return event.substr(0, spec::kMaxEventName - end.size()) + end;
  }

  std::vector<MarkerEvent>& events_;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> numbers_;  // by group, name and format
  std::set<std::pair<std::string, std::string>> names_;
  std::map<std::pair<std::string, std::string>, std::size_t> last_numbers_;  // how many events have the name
  std::set<std::pair<std::size_t, std::uint64_t>> places_;
};

std::string described(const MarkerPlace& place) { return place.path + ":" + hex(place.marker.offset); }

// The definitions of one event's places, while they get their arguments one after the other.
class Places {
 public:
  Places(const ProbeSpec& definition, const MarkerEvent& event, const FindData& find_data)
      : event_(event), find_data_(find_data) {
    for (const MarkerPlace& place : event.places) {
      noted_.push_back(noted_arguments(place.marker.arguments));
      specs_.push_back(spec_at(definition, place));
    }
  }

  std::size_t argument_count() const {
    std::size_t most = 0;
    for (const auto& noted : noted_) most = std::max(most, noted.size());
    return std::min(most, kMostArguments);
  }

  // One argument of all places, or of none.
  Status add(const WrittenArgument& written) {
    const auto type = type_for(written.text);
    if (!type) return type.error();
    std::vector<Argument> made;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      auto argument = argument_at(i, written, *type);
      if (!argument) {
        Error error = argument.error();
        if (specs_.size() > 1) error.text += " (at " + described(event_.places[i]) + ")";
        return error;
      }
      made.push_back(argument.take());
    }
    for (std::size_t i = 0; i < specs_.size(); ++i) specs_[i].arguments.push_back(std::move(made[i]));
    return ok();
  }

  // All arguments are there.
  void print_by(const std::string& format) {
    for (ProbeSpec& spec : specs_) spec.print_format = format;
  }

  const std::vector<std::vector<NotedArgument>>& noted() const { return noted_; }
  std::vector<ProbeSpec> take() { return std::move(specs_); }

 private:
  ProbeSpec spec_at(const ProbeSpec& definition, const MarkerPlace& place) const {
    ProbeSpec spec = definition;
    spec.group = event_.group, spec.event = event_.event;
    spec.is_bare = false, spec.has_automatic_name = false;
    spec.written.clear();
    spec.place.provider.clear(), spec.place.marker.clear(), spec.place.is_mark = false;
    spec.place.path = place.path;
    spec.place.offset = place.marker.offset;
    spec.place.reference_counter = place.marker.semaphore;
    const elf::Identity identity = place.file->identity();
    spec.place.device = identity.device, spec.place.inode = identity.inode;
    return spec;
  }

  // The type of all places for an argument without one of its own.
  Result<std::optional<NumberType>> type_for(const std::string& text) const {
    std::optional<NumberType> type;
    const auto number = marker_argument(text);
    if (!number || !is_untyped(text)) return type;
    for (const auto& noted : noted_) {
      if (*number > noted.size() || !noted[*number - 1].problem.empty()) continue;  // argument_at() says so
      const NumberType& here = noted[*number - 1].type;
      const auto common = type ? common_type(*type, here) : std::optional(here);
      if (!common) return no_type("$arg" + std::to_string(*number), *type, here);
      type = common;
    }
    return type;
  }

  static Error no_type(const std::string& argument, const NumberType& one, const NumberType& other) {
    const std::string bits = std::to_string(8 * std::min(one.bytes, other.bytes));
    return Error{
        .code = Code::refused,
        .text = argument + " is " + name_of(one) + " at one place of the marker and " + name_of(other) + " at another",
        .help = "a type makes them one: " + argument + ":x" + bits};
  }

  bool has_field(std::size_t i, const std::string& name) const {
    const auto& earlier = specs_[i].arguments;
    return std::any_of(earlier.begin(), earlier.end(), [&](const Argument& one) { return one.name == name; });
  }

  Result<Argument> argument_at(std::size_t i, const WrittenArgument& written, const std::optional<NumberType>& type) {
    auto argument = fetch_argument(with_name(written.text, specs_[i].arguments.size() + 1), noted_[i], type);
    if (!argument) return argument;
    argument->column = argument->symbol_column = argument->object_column = written.column;
    if (has_field(i, argument->name))
      return Error{.text = "the field '" + argument->name + "' is there already",
                   .help = "give it a name: NAME=" + written.text};
    ProbeSpec alone = specs_[i];
    alone.arguments = {argument.take()};
    RETURN_IF_ERROR(find_data_(event_.places[i], alone));
    if (alone.arguments.size() != 1) return Error{.text = "a group of variables has no place in a marker's definition"};
    return std::move(alone.arguments.front());
  }

  const MarkerEvent& event_;
  const FindData& find_data_;
  std::vector<std::vector<NotedArgument>> noted_;
  std::vector<ProbeSpec> specs_;
};

std::vector<WrittenArgument> all_arguments(const ProbeSpec& definition, const MarkerEvent& event,
                                           const Places& places) {
  if (definition.place.is_mark) return written_by_format(event.format, places.noted());
  std::vector<WrittenArgument> all;
  for (std::size_t number = 1; number <= places.argument_count(); ++number)
    all.push_back({.text = "$arg" + std::to_string(number)});
  return all;
}

}  // namespace

std::vector<std::string> notes_of_formats(const std::vector<MarkerEvent>& events) {
  std::vector<std::string> notes;
  for (const MarkerEvent& event : events)
    if (!event.also.empty())
      notes.push_back(event.group + "/" + event.event + " is " + event.group + "/" + event.also +
                      " with another format, \"" + event.format + "\", at " + described(event.places.front()));
  return notes;
}

void add_matches(const ProbeSpec& definition, const std::string& path, const std::shared_ptr<const elf::ElfFile>& file,
                 const Notes& notes, std::vector<MarkerEvent>& events) {
  const bool is_named = !definition.is_bare && !definition.has_automatic_name;
  const bool has_group = !definition.is_bare && definition.group != spec::kDefaultGroup;
  EventsByName by_name(events, *file);
  for (const Marker& marker : notes.markers)
    if (matches(definition.place.provider, marker.provider) && matches(definition.place.marker, marker.name))
      by_name.add(has_group || is_named ? definition.group : name_in_event(marker.provider),
                  is_named ? definition.event : name_in_event(marker.name), {path, file, marker});
}

Result<std::vector<ProbeSpec>> specs_of(const ProbeSpec& definition, const MarkerEvent& event,
                                        const FindData& find_data, std::vector<std::string>& notes) {
  Places places(definition, event, find_data);
  for (const WrittenArgument& written : definition.written)
    if (const Status added = places.add(written); !added)
      return spec::at_column(definition, written.column, added.error());
  if (!definition.written.empty()) return places.take();
  const std::vector<WrittenArgument> all = all_arguments(definition, event, places);
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (const Status added = places.add(all[i]); !added) {
      ++left_out;
      notes.push_back(event.group + "/" + event.event + " is recorded without its argument " + std::to_string(i + 1) +
                      ": " + added.error().text);
    }
  if (definition.place.is_mark && left_out == 0) places.print_by(event.format);
  return places.take();
}

}  // namespace uprobe::marker
