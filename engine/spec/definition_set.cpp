// SPDX-License-Identifier: MIT
// Adding to and deleting from the set. All look-ups use an index, so a list of all functions of a program (some 100,000 lines),
// and their deletion one by one, take linear time.
#include "engine/spec/definition_set.h"

#include <algorithm>
#include <optional>
#include <set>

#include "engine/spec/bare.h"
#include "engine/spec/condition.h"
#include "engine/spec/function_event.h"
#include "engine/spec/listing.h"
#include "engine/spec/messages.h"
#include "engine/spec/name.h"

namespace uprobe::spec {
namespace {

// No name contains '/'.
std::string event_key(const ProbeSpec& spec) { return spec.group + "/" + spec.event; }

// Two paths to one file are one place. A file that was not examined is known by its path alone, a symbol that was not looked up
// by its name.
std::string place_key(const Place& place) {
  std::string key = place.inode != 0 ? std::to_string(place.device) + ":" + std::to_string(place.inode) : place.path;
  if (place.found) return key + '\0' + '\0' + std::to_string(place.found->offset);
  const std::string symbol = place.source.empty() ? place.symbol : place.source + ":" + std::to_string(place.line);
  return key + '\0' + symbol + '\0' + std::to_string(place.offset);
}

bool same_type(const Argument& a, const Argument& b) {
  return a.kind == b.kind && a.size == b.size && a.is_user_string == b.is_user_string && a.count == b.count;
}

// The first argument in which the two differ; one past the shorter list if only their numbers differ.
std::optional<std::size_t> first_difference(const std::vector<Argument>& a, const std::vector<Argument>& b) {
  if (a.size() != b.size()) return std::min(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || !same_type(a[i], b[i])) return i;
  }
  return {};
}

// Two probes of one event with the same key are the same probe.
std::string exact_key(const ProbeSpec& spec) {
  std::string key = place_key(spec.place);
  for (const Argument& argument : spec.arguments) key += '\0' + argument.body;
  return key;
}

constexpr std::string_view kReturnEnd = "__return";

// A name of an event that ends so, cut where it would be too long.
std::string with_end(std::string name, std::string_view end) {
  if (name.size() + end.size() > kMaxEventName) name.resize(kMaxEventName - end.size());
  return name.append(end);
}

// The words of a definition that was accepted.
Error blame_argument(const ProbeSpec& spec, std::size_t index) {
  const Command command(spec.definition);
  if (!spec.is_bare) return command.blame(index + 2, 0, message::kDifferentArguments, EEXIST);
  Error error = command.blame(0, 0, message::kDifferentArguments, EEXIST);
  if (index < spec.arguments.size()) error.column = spec.arguments[index].column;
  return error;
}

// Whether a probe's first arguments match the words of a deletion, compared with its listing as text.
bool arguments_match(const Command& command, const ProbeSpec& spec) {
  const std::size_t first = 2;
  if (command.size() > first + spec.arguments.size()) return false;
  for (std::size_t i = first; i < command.size(); ++i) {
    const Argument& argument = spec.arguments[i - first];
    if (command.word(i) != argument.name + "=" + argument.body) return false;
  }
  return true;
}

// "-:GROUP/EVENT", "-:EVENT" (in every group), "-:GROUP/" (all of it).
struct Named {
  std::optional<std::string> group;
  std::string event;  // empty: any

  explicit Named(std::string_view name) : event(name) {
    const std::size_t slash = name.find('/');
    if (slash == std::string_view::npos) return;
    group = std::string(name.substr(0, slash));
    event = std::string(name.substr(slash + 1));
  }
  bool matches(const ProbeSpec& spec) const {
    return (event.empty() || event == spec.event) && (!group || *group == spec.group);
  }
};

}  // namespace

Error of_filter(const EventControls& controls, Error error) {
  if (controls.filter_line.empty()) return error;
  error.where = controls.filter_line;
  if (error.column >= 0) error.column += static_cast<int>(controls.filter_at);
  return error;
}

DefinitionSet::DefinitionSet(ParseOptions options, Resolve resolve)
    : options_(std::move(options)), resolve_(std::move(resolve)) {}

void DefinitionSet::clear() {
  while (!probes_.empty()) erase(probes_.rbegin()->first);
}

Status DefinitionSet::add(std::string_view line, const std::string& default_object) {
  options_.default_object = default_object;
  last_defined_.clear();
  return add(line);
}

Status DefinitionSet::write(std::string_view text, const std::string& default_object) {
  options_.default_object = default_object;
  last_defined_.clear();
  return write(text);
}

// The kernel takes a deletion only at the very start of the line.
Status DefinitionSet::add(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  RETURN_IF_ERROR(check_line(line));
  const std::size_t first = options_.strict ? 0 : line.find_first_not_of(" \t\r\v\f");
  if (first < line.size() && line[first] == '-') return remove(line);
  const Command command(line, options_.strict ? Blanks::kernel : Blanks::ascii);
  return command.size() == 0 ? ok() : define(line);
}

Status DefinitionSet::write(std::string_view text) {
  for (last_line_ = 0; !text.empty();) {
    ++last_line_;
    const std::size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    // The kernel's buffer holds 4095 bytes of a line, its newline included.
    RETURN_IF_ERROR(check_line(line, newline == std::string_view::npos ? kMaxLine : kMaxLine - 1));
    RETURN_IF_ERROR(add(line));
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
  }
  return ok();
}

// The filter applies to the events that this line defines.
Status DefinitionSet::define(std::string_view line) {
  const auto parts = split_condition(line, options_.strict);
  if (!parts) return parts.error();
  const std::size_t first = last_defined_.size();
  if (Status defined = define_all(parts->definition); !defined || !parts->filter) return defined;
  for (std::size_t i = first; i < last_defined_.size(); ++i) {
    EventControls& now = events_.at(last_defined_[i]).controls;
    now.filter = *parts->filter;
    now.filter_line = parts->line;
    now.filter_at = parts->filter_at;
  }
  return ok();
}

Result<std::vector<ProbeSpec>> DefinitionSet::resolved(Result<ProbeSpec> parsed) const {
  if (!parsed) return parsed.error();
  if (resolve_) return resolve_(parsed.take());
  return std::vector<ProbeSpec>{parsed.take()};
}

// Parentheses after a function's name are a prototype, else a part of the name of a bare place.
Result<std::vector<ProbeSpec>> DefinitionSet::read(std::string_view line) const {
  if (options_.strict || (starts_as_definition(line) && !is_function_event(line)))
    return resolved(parse_definition(line, options_));
  if (!is_function_event(line)) return resolved(parse_bare_place(line, options_));
  auto prototype = parse_function_event(line, options_);
  if (prototype) return resolved(std::move(prototype));
  auto bare = parse_bare_place(line, options_);
  if (!bare && message::is_of_parentheses(bare.error().text)) return bare.error();
  const bool is_name =
      bare && (bare->parameters || bare->place.symbol.find_first_of(":<*") != std::string::npos || !resolve_);
  auto specs = resolved(std::move(bare));
  if (!specs && !is_name) return prototype.error();
  return specs;
}

namespace {

// A place that a bare name has been resolved to and that is no symbol's and no line's: it is a copy of the function, and one event
// with it.
bool is_inlined_copy(const ProbeSpec& spec) {
  const Place& place = spec.place;
  return spec.is_bare && place.found && place.symbol.empty() && place.marker.empty() && place.line == 0;
}

}  // namespace

// Takes all definitions of a pattern or none.
Status DefinitionSet::define_all(std::string_view line) {
  auto specs = read(line);
  if (!specs) return specs.error();
  const Id first = next_;
  for (ProbeSpec& spec : *specs) {
    if (next_ > first && is_inlined_copy(spec))
      spec.event = probes_.at(first).event;
    else
      settle_name(spec);
    Status fits = check_counter(spec);
    if (fits) fits = check_event(spec);
    if (!fits) {
      while (next_ > first) {
        erase(--next_);
        last_defined_.pop_back();
      }
      return fits;
    }
    insert(std::move(spec));
  }
  return ok();
}

// All events that probe one place have one reference counter.
Status DefinitionSet::check_counter(const ProbeSpec& spec) const {
  const auto found = by_place_.find(place_key(spec.place));
  if (found == by_place_.end()) return ok();
  if (probes_.at(*found->second.begin()).place.reference_counter == spec.place.reference_counter) return ok();
  return at_column(spec, spec.place.path_column, Error{.text = std::string(message::kCounterConflict), .err = EINVAL});
}

Status DefinitionSet::check_event(const ProbeSpec& spec) const {
  const auto found = events_.find(event_key(spec));
  if (found == events_.end()) return ok();
  const Event& event = found->second;
  const Command command(spec.definition);
  const ProbeSpec& first = probes_.at(*event.probes.begin());
  if (first.is_return != spec.is_return) return command.blame(0, 0, message::kDifferentKind, EEXIST);
  const auto index = first_difference(spec.arguments, first.arguments);
  if (first.style != spec.style || (index && spec.style == Style::function))
    return command.blame(0, 0, message::kDifferentArguments, EEXIST);
  if (index) return blame_argument(spec, *index);
  if (event.exact.contains(exact_key(spec))) return command.blame(0, 0, message::kSameProbe, EEXIST);
  return ok();
}

// A bare place's event has a name that no other place or kind has: a return's is "f__return" beside the entry's "f", and those
// after the first are "f_1", "f_2", ...
void DefinitionSet::settle_name(ProbeSpec& spec) {
  if (!spec.is_bare) return;
  const std::string name = spec.event;
  const auto is_free = [&] {
    const auto found = events_.find(event_key(spec));
    if (found == events_.end()) return true;
    const ProbeSpec& first = probes_.at(*found->second.probes.begin());
    // A line of source is one event, wherever its code is.
    const bool is_line =
        spec.place.line != 0 && first.place.line == spec.place.line && first.place.path == spec.place.path;
    return first.is_return == spec.is_return && (is_line || place_key(first.place) == place_key(spec.place));
  };
  if (is_free()) return;
  if (const auto found = events_.find(event_key(spec)); !spec.is_return) {
    const ProbeSpec& first = probes_.at(*found->second.probes.begin());
    if (first.is_return && first.is_bare && place_key(first.place) == place_key(spec.place) &&
        rename(event_key(spec), with_end(name, kReturnEnd)))
      return;
  }
  const std::string base = spec.is_return ? with_end(name, kReturnEnd) : name;
  spec.event = base;
  for (unsigned number = 1; !is_free(); ++number) spec.event = with_end(base, "_" + std::to_string(number));
}

// Not if the name is in use, or the events are in use under their name.
bool DefinitionSet::rename(const std::string& key, const std::string& event) {
  const auto old = events_.find(key);
  const std::set<Id> ids = old->second.probes;
  const std::string group = probes_.at(*ids.begin()).group, now = group + "/" + event;
  if (events_.contains(now) || *ids.begin() < kept_below_) return false;
  const std::string before = probes_.at(*ids.begin()).event;
  by_name_[before].erase(key), by_group_[group].erase(key);
  if (by_name_[before].empty()) by_name_.erase(before);
  for (const Id id : ids) probes_.at(id).event = event;
  events_[now] = std::move(old->second);
  events_.erase(key);
  by_name_[event].insert(now), by_group_[group].insert(now);
  std::replace(last_defined_.begin(), last_defined_.end(), key, now);
  return true;
}

void DefinitionSet::insert(ProbeSpec spec) {
  const std::string key = event_key(spec);
  Event& event = events_[key];
  last_defined_.push_back(key);
  event.probes.insert(next_);
  event.exact.insert(exact_key(spec));
  by_name_[spec.event].insert(key);
  by_group_[spec.group].insert(key);
  by_place_[place_key(spec.place)].insert(next_);
  by_listing_[place_listing(spec.place)].insert(next_);
  probes_.emplace(next_++, std::move(spec));
}

void DefinitionSet::erase(Id id) {
  const auto probe = probes_.find(id);
  const ProbeSpec& spec = probe->second;
  const std::string key = event_key(spec);
  const auto drop = [](auto& index, const std::string& name, const auto& what) {
    const auto entry = index.find(name);
    entry->second.erase(what);
    if (entry->second.empty()) index.erase(entry);
  };
  drop(by_place_, place_key(spec.place), id);
  drop(by_listing_, place_listing(spec.place), id);
  Event& event = events_.at(key);
  event.exact.erase(exact_key(spec));
  event.probes.erase(id);
  if (event.probes.empty()) {
    drop(by_name_, spec.event, key);
    drop(by_group_, spec.group, key);
    events_.erase(key);
  }
  probes_.erase(probe);
}

std::vector<DefinitionSet::Id> DefinitionSet::matching(const Command& command, std::string_view name) const {
  const Named named(name);
  std::vector<Id> ids;
  const auto take = [&](const auto& candidates) {
    for (const Id id : candidates) {
      const ProbeSpec& spec = probes_.at(id);
      if (named.matches(spec) && arguments_match(command, spec)) ids.push_back(id);
    }
  };
  if (command.size() > 1) {
    const auto at_place = by_listing_.find(std::string(command.word(1)));
    if (at_place != by_listing_.end()) take(at_place->second);
  } else if (named.group && !named.event.empty()) {
    const auto event = events_.find(std::string(name));
    if (event != events_.end()) take(event->second.probes);
  } else {
    const auto& index = named.group ? by_group_ : by_name_;
    const auto keys = index.find(named.group ? *named.group : named.event);
    if (keys == index.end()) return ids;
    for (const std::string& key : keys->second) take(events_.at(key).probes);
  }
  return ids;
}

// Linux 3.10's documentation deletes automatic names without their "p_": -:bash_0x4245c0.
Status DefinitionSet::remove(std::string_view line) {
  const Command command(line, options_.strict ? Blanks::kernel : Blanks::ascii);
  const std::string_view head = command.word(0);
  if (!head.starts_with("-:") || head.size() == 2) return command.blame(0, 0, message::kBadDeletion);
  const std::string_view name = head.substr(2);
  std::vector<Id> ids = matching(command, name);
  if (ids.empty() && !options_.strict) {
    const std::size_t event = name.find('/') + 1;  // 0 without a group
    ids = matching(command, std::string(name.substr(0, event)) + "p_" + std::string(name.substr(event)));
  }
  if (ids.empty()) return command.blame(0, 2, message::kNothingToDelete, ENOENT);
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) erase(*id);
  return ok();
}

void DefinitionSet::control(const EventControls& controls) {
  // An event of several places has been defined as often.
  const std::set<std::string> keys(last_defined_.begin(), last_defined_.end());
  for (const std::string& key : keys) {
    const auto event = events_.find(key);
    if (event == events_.end()) continue;
    EventControls& now = event->second.controls;
    if (controls.filter) now.filter = controls.filter, now.filter_line.clear();
    now.triggers.insert(now.triggers.end(), controls.triggers.begin(), controls.triggers.end());
    now.is_disabled = now.is_disabled || controls.is_disabled;
  }
}

const EventControls& DefinitionSet::controls_of(const ProbeSpec& spec) const {
  static const EventControls kNone;
  const auto event = events_.find(event_key(spec));
  return event == events_.end() ? kNone : event->second.controls;
}

std::vector<ProbeSpec> DefinitionSet::probes() const {
  std::vector<ProbeSpec> result;
  result.reserve(probes_.size());
  for (const auto& [id, spec] : probes_) result.push_back(spec);
  return result;
}

std::vector<EventProbes> DefinitionSet::events() const {
  std::unordered_map<std::string, std::size_t> known;
  std::vector<EventProbes> result;
  std::size_t index = 0;
  for (const auto& [id, spec] : probes_) {
    const auto [at, is_new] = known.try_emplace(event_key(spec), result.size());
    if (is_new) result.push_back({spec.group, spec.event, {}});
    result[at->second].probes.push_back(index++);
  }
  return result;
}

std::string DefinitionSet::listing() const {
  std::string text;
  for (const auto& [id, spec] : probes_) text += spec::listing(spec) + "\n";
  return text;
}

}  // namespace uprobe::spec
