// Adding to and deleting from the set. The indices make each definition a look-up, so that a list of all functions of a
// program (some 100,000 lines) is taken in linear time.
#include "engine/spec/definition_set.h"

#include <algorithm>
#include <optional>

#include "engine/spec/listing.h"
#include "engine/spec/messages.h"

namespace uprobe::spec {
namespace {

// '/' is in no name.
std::string event_key(const ProbeSpec& spec) { return spec.group + "/" + spec.event; }

// Two paths to one file are one place. A file that was not looked at is known by its path alone. A symbol and an offset
// that mean the same are told apart only after symbols are resolved.
std::string place_key(const Place& place) {
  std::string key = place.inode != 0 ? std::to_string(place.device) + ":" + std::to_string(place.inode) : place.path;
  return key + '\0' + place.symbol + '\0' + std::to_string(place.offset);
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

bool same_probe(const ProbeSpec& a, const ProbeSpec& b) {
  const auto same_body = [](const Argument& x, const Argument& y) { return x.body == y.body; };
  return place_key(a.place) == place_key(b.place) &&
         std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(), same_body);
}

// The words of a deletion after "-:", compared with the listing as text.
struct Pattern {
  std::optional<std::string_view> group;
  std::string_view event;  // empty: any
  const Command& command;

  bool matches(const ProbeSpec& spec) const {
    if (!event.empty() && event != spec.event) return false;
    if (group && *group != spec.group) return false;
    if (command.size() == 1) return true;
    if (command.size() - 2 > spec.arguments.size() || command.word(1) != place_listing(spec.place)) return false;
    for (std::size_t i = 2; i < command.size(); ++i) {
      const Argument& argument = spec.arguments[i - 2];
      if (command.word(i) != argument.name + "=" + argument.body) return false;
    }
    return true;
  }
};

}  // namespace

DefinitionSet::DefinitionSet(ParseOptions options) : options_(std::move(options)) {}

Status DefinitionSet::add(std::string_view line, const std::string& default_object) {
  options_.default_object = default_object;
  return add(line);
}

// The kernel takes a deletion only at the very start of the line.
Status DefinitionSet::add(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (auto status = check_line(line); !status) return status;
  const std::size_t first = options_.strict ? 0 : line.find_first_not_of(" \t\r\v\f");
  if (first < line.size() && line[first] == '-') return remove(line);
  const Command command(line, options_.strict ? Blanks::kernel : Blanks::ascii);
  return command.size() == 0 ? ok() : define(line);
}

Status DefinitionSet::write(std::string_view text) {
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    // The kernel's buffer holds 4095 bytes of a line, its newline included.
    if (auto status = check_line(line, newline == std::string_view::npos ? kMaxLine : kMaxLine - 1); !status)
      return status;
    if (auto status = add(line); !status) return status;
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
  }
  return ok();
}

Status DefinitionSet::define(std::string_view line) {
  auto spec = parse_definition(line, options_);
  if (!spec) return spec.error();
  if (auto status = check_counter(*spec); !status) return status;
  if (auto status = check_event(*spec); !status) return status;
  insert(spec.take());
  return ok();
}

// One place has one reference counter, whichever events probe it.
Status DefinitionSet::check_counter(const ProbeSpec& spec) const {
  const auto found = by_place_.find(place_key(spec.place));
  if (found == by_place_.end()) return ok();
  if (probes_[found->second].place.reference_counter == spec.place.reference_counter) return ok();
  return Command(spec.definition).blame(1, 0, message::kCounterConflict);
}

Status DefinitionSet::check_event(const ProbeSpec& spec) const {
  const auto found = by_event_.find(event_key(spec));
  if (found == by_event_.end()) return ok();
  const Command command(spec.definition);
  const ProbeSpec& first = probes_[found->second.front()];
  if (first.is_return != spec.is_return) return command.blame(0, 0, message::kDifferentKind, EEXIST);
  if (const auto index = first_difference(spec.arguments, first.arguments))
    return command.blame(*index + 2, 0, message::kDifferentArguments, EEXIST);
  for (const std::size_t probe : found->second) {
    if (same_probe(probes_[probe], spec)) return command.blame(0, 0, message::kSameProbe, EEXIST);
  }
  return ok();
}

void DefinitionSet::insert(ProbeSpec spec) {
  probes_.push_back(std::move(spec));
  index(probes_.size() - 1);
}

void DefinitionSet::index(std::size_t probe) {
  by_event_[event_key(probes_[probe])].push_back(probe);
  by_place_.try_emplace(place_key(probes_[probe].place), probe);
}

Status DefinitionSet::remove(std::string_view line) {
  const Command command(line, options_.strict ? Blanks::kernel : Blanks::ascii);
  const std::string_view head = command.word(0);
  if (!head.starts_with("-:") || head.size() == 2) return command.blame(0, 0, message::kBadDeletion);
  const std::string_view name = head.substr(2);
  const std::size_t slash = name.find('/');
  Pattern pattern{.group = {}, .event = name, .command = command};
  if (slash != std::string_view::npos) {
    pattern.group = name.substr(0, slash);
    pattern.event = name.substr(slash + 1);
  }
  if (std::erase_if(probes_, [&](const ProbeSpec& spec) { return pattern.matches(spec); }) == 0)
    return command.blame(0, 2, message::kNothingToDelete, ENOENT);
  by_event_.clear();
  by_place_.clear();
  for (std::size_t i = 0; i < probes_.size(); ++i) index(i);
  return ok();
}

std::vector<EventProbes> DefinitionSet::events() const {
  std::vector<EventProbes> result;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    const auto& members = by_event_.at(event_key(probes_[i]));
    if (members.front() == i) result.push_back({probes_[i].group, probes_[i].event, members});
  }
  return result;
}

std::string DefinitionSet::listing() const {
  std::string text;
  for (const ProbeSpec& spec : probes_) text += spec::listing(spec) + "\n";
  return text;
}

}  // namespace uprobe::spec
