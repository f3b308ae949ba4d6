// SPDX-License-Identifier: MIT
// The probes of a session, built like tracefs' uprobe_events: definitions add probes, deletions remove them, and a definition
// with the name of an existing event adds a probe to that event, if their arguments agree.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/base/result.h"
#include "engine/lex/words.h"
#include "engine/spec/parse.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::spec {

// An event and its probes, indices into DefinitionSet::probes(), oldest first. All have the same names, types and array sizes
// of arguments, and therefore the same record layout.
struct EventProbes {
  std::string group, event;
  std::vector<std::size_t> probes;
};

// The contents of an event's files `filter`, `trigger` and `enable`, as written. They are parsed elsewhere
// (engine/program/filter.h, trigger.h).
struct EventControls {
  std::optional<std::string> filter = {};
  std::string filter_line = {};            // the definition that contains it, after "if"; empty: it was given by itself
  std::size_t filter_at = 0;               // its place there
  std::vector<std::string> triggers = {};  // oldest first
  bool is_disabled = false;
};

// Adds to an error about the filter its place in the definition, if it is part of one.
Error of_filter(const EventControls& controls, Error error);

// Applied to a parsed definition before it joins the set: looks up symbols, and turns a pattern into a definition for each
// matching function.
using Resolve = std::function<Result<std::vector<ProbeSpec>>(ProbeSpec spec)>;

class DefinitionSet {
 public:
  using Id = std::size_t;  // of a probe, counting all that were ever added

  explicit DefinitionSet(ParseOptions options = {}, Resolve resolve = {});

  // One line: a definition (with a condition if not strict, condition.h), a bare place (bare.h, if not strict), a deletion ("-:GROUP/EVENT", "-:EVENT", "-:GROUP/",
  // each with a place and arguments to match), a comment or nothing. On an error the set is as before.
  Status add(std::string_view line);
  // The same with another default object (-x) for this and the following lines.
  Status add(std::string_view line, const std::string& default_object);

  // For the events that the last add() or write() with an object has defined: a filter replaces an earlier one,
  // triggers are added.
  void control(const EventControls& controls);
  // Of the probe's event.
  const EventControls& controls_of(const ProbeSpec& spec) const;

  // One write(2) to uprobe_events: lines until the first that fails. The effects of earlier lines stay.
  Status write(std::string_view text);
  Status write(std::string_view text, const std::string& default_object);
  // The number, from 1, of the last line that the last write() has read.
  int last_line() const { return last_line_; }

  void clear();  // as an empty write did in the kprobe tracer of 2009 (echo > kprobe_events)

  std::size_t size() const { return probes_.size(); }
  const std::map<Id, ProbeSpec>& by_id() const { return probes_; }  // in the order of their definitions
  void erase(Id id);
  // The probes that there are now keep the names of their events.
  void keep_names() { kept_below_ = next_; }
  std::vector<ProbeSpec> probes() const;    // the same
  std::vector<EventProbes> events() const;  // in the order of their first probe
  std::string listing() const;              // a line per probe

 private:
  struct Event {
    std::set<Id> probes;
    std::unordered_set<std::string> exact;  // places and fetches of the probes
    EventControls controls;
  };

  Result<std::vector<ProbeSpec>> resolved(Result<ProbeSpec> parsed) const;
  Result<std::vector<ProbeSpec>> read(std::string_view line) const;
  void settle_name(ProbeSpec& spec);
  bool rename(const std::string& key, const std::string& event);
  Status define(std::string_view line);
  Status define_all(std::string_view definition);
  Status remove(std::string_view line);
  std::vector<Id> matching(const Command& command, std::string_view name) const;
  Status check_counter(const ProbeSpec& spec) const;
  Status check_event(const ProbeSpec& spec) const;
  void insert(ProbeSpec spec);

  ParseOptions options_;
  Resolve resolve_;
  int last_line_ = 0;
  Id next_ = 0;
  Id kept_below_ = 0;
  std::vector<std::string> last_defined_;  // keys of events_
  std::map<Id, ProbeSpec> probes_;
  std::unordered_map<std::string, Event> events_;                    // by "GROUP/EVENT"
  std::unordered_map<std::string, std::set<std::string>> by_name_;   // by EVENT: keys of events_
  std::unordered_map<std::string, std::set<std::string>> by_group_;  // by GROUP: keys of events_
  std::unordered_map<std::string, std::set<Id>> by_place_;           // they share their reference counter
  std::unordered_map<std::string, std::set<Id>> by_listing_;         // by PLACE as listed
};

}  // namespace uprobe::spec
