// The probes of a session, built as tracefs' uprobe_events is: definitions add probes, deletions take them away, and a
// definition with the name of an event that is there adds a probe to that event, if their arguments agree.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/result.h"
#include "engine/spec/parse.h"
#include "engine/spec/probe_spec.h"
#include "engine/spec/words.h"

namespace uprobe::spec {

// An event and its probes, indices into DefinitionSet::probes(), oldest first. They have the same names, types and
// array sizes of arguments and therefore the same record layout.
struct EventProbes {
  std::string group, event;
  std::vector<std::size_t> probes;
};

class DefinitionSet {
 public:
  explicit DefinitionSet(ParseOptions options = {});

  // One line: a definition, a deletion ("-:GROUP/EVENT", "-:EVENT", "-:GROUP/", each with a place and arguments to
  // match), a comment or nothing. On an error the set is as before.
  Status add(std::string_view line);
  // The same with another default object (-x) for this and the following lines.
  Status add(std::string_view line, const std::string& default_object);

  // One write(2) to uprobe_events: lines until the first that fails. What earlier lines did stays.
  Status write(std::string_view text);

  const std::vector<ProbeSpec>& probes() const { return probes_; }  // in the order of their definitions
  std::vector<EventProbes> events() const;                          // in the order of their first probe
  std::string listing() const;                                      // a line per probe

 private:
  Status define(std::string_view line);
  Status remove(std::string_view line);
  Status check_counter(const ProbeSpec& spec) const;
  Status check_event(const ProbeSpec& spec) const;
  void insert(ProbeSpec spec);
  void index(std::size_t probe);

  ParseOptions options_;
  std::vector<ProbeSpec> probes_;
  std::unordered_map<std::string, std::vector<std::size_t>> by_event_;
  std::unordered_map<std::string, std::size_t> by_place_;  // one of the probes there: they share their counter
};

}  // namespace uprobe::spec
