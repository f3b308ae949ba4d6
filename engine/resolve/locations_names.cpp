// SPDX-License-Identifier: MIT
// The object of a place: by its name, or as the first in the loader's order that has the function.
#include <unistd.h>

#include <algorithm>

#include "engine/base/process_paths.h"
#include "engine/names/near_names.h"
#include "engine/resolve/locations.h"
#include "engine/resolve/mapped_objects.h"
#include "engine/resolve/programs.h"
#include "engine/resolve/script.h"
#include "engine/spec/name.h"
#include "engine/spec/parse.h"

namespace uprobe {
namespace {

using spec::ProbeSpec;

constexpr std::size_t kShownObjects = 4;

// Assembly code and data have labels: a name means a function first.
enum class Kind { function, function_or_label };

bool has_function(const elf::ElfFile& file, const std::string& name, Kind kind) {
  const auto found = file.find_functions(name);
  return std::any_of(found.begin(), found.end(),
                     [&](const elf::Symbol& symbol) { return kind == Kind::function_or_label || !symbol.is_label; });
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShownObjects); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return text + (names.size() > kShownObjects ? ", ..." : "");
}

void look_at(spec::Place& place) {
  const spec::FileState state = spec::look_up_file(place.path);
  place.device = state.device;
  place.inode = state.inode;
}

}  // namespace

const std::vector<LoadedObject>& LocationResolver::objects_for(const spec::Place& place) {
  const auto [order, is_new] = orders_.try_emplace(place.program);
  if (is_new && !place.program.empty()) order->second = load_order(place.program, files_);
  return order->second;
}

// The program that is executed for a script, in its stead.
std::string LocationResolver::without_script(const std::string& path) {
  const auto [program, is_new] = programs_.try_emplace(path, path);
  const auto found = is_new ? program_of_script(path) : std::nullopt;
  if (!found) return program->second;
  const std::string name = base_name(found->shim);
  if (found->shim.empty())
    note("'" + path + "' is a script: its interpreter " + found->path + " is probed");
  else if (found->is_known)
    note("'" + found->shim + "' is a shim of " + found->manager + ": " + found->path + " is probed");
  else
    note("'" + found->shim + "' is a shim of " + found->manager + ", and the program that it executes is not known: '" +
         found->manager + " which " + name + "' says it; " + found->path + " is probed");
  return program->second = found->path;
}

// A running process keeps the file that it was started from.
void LocationResolver::tell_replaced(pid_t pid, const spec::Place& place) {
  const std::string process = "process " + std::to_string(pid);
  if (!place.names_object) {
    const ProcessProgram program = program_of(pid);
    if (program.is_replaced)
      note(program.name + " was replaced or removed after " + process +
           " had started: the file that it runs is probed");
  } else if (has_replaced_mapping(pid, place.path)) {
    note(place.path + " was replaced after " + process +
         " had mapped it: the new file is probed, which the process does not " +
         "run; a name without a path means the file that it runs");
  }
}

void LocationResolver::note(std::string line) {
  if (std::find(notes_.begin(), notes_.end(), line) == notes_.end()) notes_.push_back(std::move(line));
}

// "f:3", where no object is called f: the third line of the function f.
Status LocationResolver::as_line_of_function(ProbeSpec& spec) {
  spec::Place& place = spec.place;
  place.source = place.path;
  place.line = static_cast<int>(std::min<std::uint64_t>(place.offset, INT32_MAX));
  place.offset = 0;
  place.path = place.program;
  spec.event = spec::bare_event_name(place, {});
  look_at(place);
  return ok();
}

// A name without a slash is a program in PATH, as for the shell, or one of the objects of the program to be traced; of a bare place
// these come first. Other libraries are found as the loader would find them.
Status LocationResolver::find_object(ProbeSpec& spec) {
  spec::Place& place = spec.place;
  const std::string name = place.path;
  const std::string script = place.program;
  place.program = without_script(script);
  if (place.program != script && !place.names_object && ::access(place.program.c_str(), F_OK) != 0)
    return at_column(spec, place.path_column,
                     Error{.code = Code::refused,
                           .text = "'" + script + "' is a script, and there is no '" + place.program + "' to run it"});
  if (name.find('/') != std::string::npos) {
    place.path = place.names_object ? without_script(as_seen_by(place.program, name)) : place.program;
    if (const auto pid = process_of(place.program)) tell_replaced(*pid, place);
    if (!place.names_object && process_of(name))
      if (const auto objects = objects_for(place); !objects.empty()) place.path = objects.front().path;
    if (place.path != name) look_at(place);
    return ok();
  }
  auto program = find_program(name);
  if (spec.is_bare || !program) {
    for (const LoadedObject& object : objects_for(place))
      if (is_called(object, name)) {
        place.path = object.path;
        look_at(place);
        return ok();
      }
  }
  if (spec.is_bare && !program && place.symbol.empty() && place.source.empty() && place.marker.empty() &&
      !place.program.empty())
    return as_line_of_function(spec);
  if (!program)
    if (std::string library = find_library(name); !library.empty()) program = std::move(library);
  if (!program) {
    std::vector<std::string> names;
    for (const LoadedObject& object : objects_for(place)) names.push_back(base_name(object.path));
    return at_column(spec, place.path_column,
                     Error{.code = Code::not_found,
                           .text = program.error().text,
                           .help = names.empty() ? program.error().help : "there are: " + list_of(names)});
  }
  place.path = program.take();
  look_at(place);
  return ok();
}

Error LocationResolver::unknown_function(const ProbeSpec& spec, const std::vector<LoadedObject>& objects) {
  const std::string& name = spec.place.symbol;
  elf::NearNames near(name);
  std::vector<std::string> candidates;
  for (const LoadedObject& object : objects)
    if (const auto file = files_.open(object.path))
      for (std::string& close : (*file)->close_names(name)) candidates.push_back(std::move(close));
  for (const std::string& candidate : candidates) near.offer(candidate);
  const std::vector<std::string> best = near.best(3);
  const std::size_t libraries = objects.empty() ? 0 : objects.size() - 1;
  Error error{.code = Code::not_found,
              .text = (is_pattern(name) ? "no function matches '" : "no function '") + name + "' in " +
                      spec.place.path +
                      (libraries == 0   ? ""
                       : libraries == 1 ? " or its library"
                                        : " or its " + std::to_string(libraries) + " libraries")};
  if (!best.empty()) error.help = "close: " + list_of(best);
  const auto first = files_.open(spec.place.path);
  if (first && !(*first)->has_names())
    error.help += std::string(error.help.empty() ? "" : "; ") + base_name(spec.place.path) +
                  " is stripped: only functions that it exports are known by name";
  return at_column(spec, spec.place.place_column, std::move(error));
}

// The object of the program that has a function which is not in the object that the place names; empty: none.
std::string LocationResolver::object_with(const ProbeSpec& spec) {
  spec::Place place = spec.place;
  if (!spec.is_bare || !place.names_object || place.symbol.empty() || !place.marker.empty()) return {};
  place.program = without_script(place.program);
  for (const LoadedObject& object : objects_for(place))
    if (const auto file = files_.open(object.path); file && has_function(**file, place.symbol, Kind::function))
      return base_name(object.path);
  return {};
}

// Decides what a place's name means, in the object that it names or, without one, in the first object that has it: a function,
// then a function and names for its arguments, then a pattern.
Status LocationResolver::find_function(ProbeSpec& spec) {
  spec::Place& place = spec.place;
  if (place.symbol.empty() || !place.source.empty() || (place.names_object && !spec.is_bare)) return ok();
  std::vector<LoadedObject> objects;
  if (!place.names_object) objects = objects_for(place);
  if (objects.empty()) objects.push_back({place.path, {}});
  const auto choose = [&](const std::string& name, const auto& has) {
    std::vector<std::string> others;
    bool is_found = false;
    for (const LoadedObject& object : objects) {
      const auto file = files_.open(object.path);
      if (!file || !has(**file)) continue;
      if (is_found) others.push_back(base_name(object.path) + ":" + name);
      if (!is_found && object.path != place.path) place.path = object.path, look_at(place);
      is_found = true;
    }
    if (!others.empty()) note("'" + name + "' is probed in " + place.path + "; there is also " + list_of(others));
    return is_found;
  };
  const auto choose_name = [&](const std::string& name) {
    for (const Kind kind : {Kind::function, Kind::function_or_label})
      if (choose(name, [&](const elf::ElfFile& file) { return has_function(file, name, kind); })) return true;
    return false;
  };
  if (choose_name(place.symbol)) return ok();
  if (spec.parameters && choose_name(spec.parameters->function)) {
    place.symbol = spec.parameters->function;
    spec.arguments.insert(spec.arguments.begin(), spec.parameters->arguments.begin(), spec.parameters->arguments.end());
    return ok();
  }
  const auto matches = [&](const elf::ElfFile& file) { return !matching_functions(file, place.symbol).empty(); };
  if (is_pattern(place.symbol) && choose(place.symbol, matches)) return ok();
  if (spec.parameters) place.symbol = spec.parameters->function;
  if (place.names_object || !files_.open(place.path)) return ok();  // the look-up says what is wrong
  if (choose_inlined(spec, objects)) return ok();
  return unknown_function(spec, objects);
}

}  // namespace uprobe
