// SPDX-License-Identifier: MIT
// Resolves the names in a definition: finds a program through PATH, a library among those of the program (load_order.h), the object
// that has a function, and the file offset of a symbol; replaces a pattern by a
// definition for each matching function, a source line or a marker by one for each place of its code, $vars by an argument for each
// variable, @SYMBOL by memory at a fixed distance from the probe, and a variable by its location in the debug information.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/marker/marker_event.h"
#include "engine/plan/resolve.h"
#include "engine/resolve/debug_reader.h"
#include "engine/resolve/load_order.h"
#include "engine/spec/probe_spec.h"

namespace uprobe {

// A spec::Resolve. Errors carry a column of the definition.
class LocationResolver {
 public:
  // Whether a definition is possible at a site; the reason if not.
  using CanProbe = std::function<Status(const spec::ProbeSpec&, const plan::Site&)>;

  // `files` must outlive it. Patterns leave out what `can_probe` refuses.
  explicit LocationResolver(plan::FileCache& files, CanProbe can_probe = {})
      : files_(files), can_probe_(std::move(can_probe)) {}

  Result<std::vector<spec::ProbeSpec>> operator()(spec::ProbeSpec spec);

  // The file of a spec::Argument::object that was looked up.
  std::shared_ptr<const elf::ElfFile> object(const std::string& path) const;

  // Ends the debug information readers. They start again when needed.
  void close_debug_info() { debug_.clear(), without_copies_.clear(); }

  // Notes for the user: functions that match a pattern and cannot be probed.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  using File = std::shared_ptr<const elf::ElfFile>;
  using Specs = std::vector<spec::ProbeSpec>;

  Result<Specs> find(spec::ProbeSpec spec);
  Result<Specs> at_symbol(spec::ProbeSpec spec);
  bool fetch_names(const spec::ProbeSpec& spec);
  Status check_match(const spec::ProbeSpec& spec, const File& file);
  Result<Specs> of_source(const spec::ProbeSpec& spec, Specs all);
  Result<Specs> at_line(spec::ProbeSpec spec);
  Result<Specs> at_markers(const spec::ProbeSpec& spec);
  Result<std::vector<LoadedObject>> objects_with_markers(const spec::ProbeSpec& spec);
  Result<std::vector<marker::MarkerEvent>> events_of_markers(const spec::ProbeSpec& spec);
  Status leave_out_places(const spec::ProbeSpec& spec, marker::MarkerEvent& event);
  Result<std::vector<spec::Argument>> variables_for(const spec::Argument& group, const spec::ProbeSpec& spec,
                                                    const plan::Found& place, std::optional<std::uint32_t> copy);
  Status expand_variables(spec::ProbeSpec& spec, const plan::Found& place, std::optional<std::uint32_t> copy);
  std::vector<dwarf::InlinedCopy> copies_of(const File& file, const std::string& function);
  bool choose_inlined(spec::ProbeSpec& spec, const std::vector<LoadedObject>& objects);
  Result<spec::ProbeSpec> at_copy(spec::ProbeSpec spec, const File& file, const dwarf::InlinedCopy& copy);
  Error with_inlining(const spec::ProbeSpec& spec, Error error);
  Result<Specs> with_copies(spec::ProbeSpec spec, Result<Specs> own);
  Result<const DebugReader*> debug_info(const File& file);
  Status pass_prologue(spec::ProbeSpec& spec, plan::Found& found);
  Status find_variables(spec::ProbeSpec& spec, const plan::Found& place, std::optional<std::uint32_t> copy);
  Status find_object(spec::ProbeSpec& spec);
  std::string without_script(const std::string& path);
  void tell_replaced(pid_t pid, const spec::Place& place);
  void note(std::string line);
  Status as_line_of_function(spec::ProbeSpec& spec);
  Status find_function(spec::ProbeSpec& spec);
  const std::vector<LoadedObject>& objects_for(const spec::Place& place);
  std::string object_with(const spec::ProbeSpec& spec);
  Error unknown_function(const spec::ProbeSpec& spec, const std::vector<LoadedObject>& objects);
  Result<Specs> expand(const spec::ProbeSpec& pattern, const File& file, const std::vector<elf::Symbol>& functions,
                       const std::string& help);
  // `copy`: the place is that inlined copy's.
  Status find_data(spec::ProbeSpec& spec, const plan::Found& place, std::optional<std::uint32_t> copy = {});
  Status find_in_object(const spec::ProbeSpec& spec, spec::Argument& argument);

  plan::FileCache& files_;
  CanProbe can_probe_;
  std::string source_;  // of "f@file.c", which is looked up; else empty
  std::vector<std::string> notes_;
  std::set<std::string> asked_;                                 // files whose names were asked for by debuginfod
  std::vector<std::string> moved_;                              // notes for `notes_`, once their probe is complete
  std::map<std::pair<File, std::string>, std::uint64_t> data_;  // link-time addresses
  std::map<File, DebugReader> debug_;
  std::set<File> without_copies_;  // files whose debug information says nothing of them
  std::map<std::string, File> objects_;
  std::map<std::string, std::vector<LoadedObject>> orders_;  // by program
  std::map<std::string, std::string> programs_;  // what is executed for a file: a script's interpreter, or itself
};

// Whether a symbol may be a pattern, if no function has it as its name.
bool is_pattern(const std::string& symbol);

// "file.c" of "f@file.c", and leaves "f"; else empty.
std::string take_source(std::string& symbol);

// The functions that match a pattern.
std::vector<elf::Symbol> matching_functions(const elf::ElfFile& file, const std::string& pattern);

}  // namespace uprobe
