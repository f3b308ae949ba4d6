// SPDX-License-Identifier: MIT
// A plain name is tried before a pattern, because C++ names contain '*' and '[' too ("operator*", "f(char*)").
#include "engine/resolve/locations.h"

#include <fnmatch.h>

#include <algorithm>
#include <tuple>

#include "engine/base/text.h"
#include "engine/marker/marks.h"
#include "engine/names/near_names.h"
#include "engine/resolve/generated_places.h"
#include "engine/resolve/go_arguments.h"
#include "engine/resolve/programs.h"
#include "engine/spec/name.h"
#include "engine/spec/parse.h"

namespace uprobe {
namespace {

using spec::ProbeSpec;

// `function`: the name of the symbol that was found.
void set_place(ProbeSpec& spec, const std::string& symbol, const std::string& function,
               const spec::FoundSymbol& found) {
  spec.place.symbol = symbol;
  spec.place.found = found;
  if (spec.event == spec::kNameOfSymbol) spec.event = spec::symbol_event_name(spec.place);
  if (spec.is_bare)
    spec.event = spec::bare_event_name(spec.place, elf::plain_name(function));
  else if (spec.has_automatic_name)
    spec.event = spec::automatic_name(spec.place, spec.is_return);
}

// Where several functions have the name, a bare place is all of them.
std::vector<elf::Symbol> functions_of(const spec::ProbeSpec& spec, const elf::ElfFile& file) {
  return spec.place.symbol.empty() ? std::vector<elf::Symbol>() : file.find_functions(spec.place.symbol);
}

// For the event's name: a bare place may give it demangled.
std::string name_of_function(const spec::ProbeSpec& spec, const elf::ElfFile& file) {
  const auto functions = spec.is_bare ? functions_of(spec, file) : std::vector<elf::Symbol>();
  return functions.empty() ? spec.place.symbol : functions[0].name;
}

// Of several names of one function, the one that the user probably means: "free" of "__libc_free", "cfree" and "free".
bool is_better_name(const elf::Symbol& a, const elf::Symbol& b) {
  const auto rank = [](const elf::Symbol& s) {
    return std::tuple(s.is_of_debug_file, std::min(s.name.find_first_not_of('_'), s.name.size()), s.name.size());
  };
  return rank(a) < rank(b);
}

// Compares with the symbol's name; a pattern with "::" also with the C++ name and its parameters.
bool matches(const std::string& pattern, const std::string& name) {
  if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  return pattern.find("::") != std::string::npos && elf::matches_spoken(pattern, elf::demangle(name));
}

// Code that a compiler moved out of a function and that is reached by jumps: its calls belong to the function.
bool is_cold_part(const std::string& name) { return name.ends_with(".cold"); }

}  // namespace

bool is_pattern(const std::string& symbol) { return symbol.find_first_of("*?[") != std::string::npos; }

// Each once, by address.
std::vector<elf::Symbol> matching_functions(const elf::ElfFile& file, const std::string& pattern) {
  std::vector<elf::Symbol> found;
  for (const elf::Symbol& symbol : file.named_functions()) {
    if (symbol.is_label || is_cold_part(symbol.name) || !matches(pattern, symbol.name)) continue;
    if (found.empty() || found.back().address != symbol.address)
      found.push_back(symbol);
    else if (is_better_name(symbol, found.back()))
      found.back() = symbol;
  }
  return found;
}

namespace {

// The OFF of @+OFF, which the kernel counts from the probe, for a link-time address.
std::uint64_t distance(std::uint64_t address, const plan::Found& place) {
  return address - place.address + place.offset;
}

Error ambiguous(const std::string& symbol, const std::vector<std::uint64_t>& addresses, const plan::Found& place) {
  std::string candidates;
  constexpr std::size_t kShown = 4;
  for (std::size_t i = 0; i < std::min(kShown, addresses.size()); ++i)
    candidates += (i == 0 ? "@+" : ", @+") + hex(distance(addresses[i], place));
  return Error{.text = "'" + symbol + "' is ambiguous in " + place.file->path(),
               .help = "candidates: " + candidates + (addresses.size() > kShown ? ", ..." : "")};
}

// Whether it names data of the probed file, which has to be found there.
bool is_in_file(const spec::Argument& argument) { return !argument.symbol.empty() || argument.address; }

bool is_mapped(const elf::ElfFile& file, std::uint64_t address) {
  const auto segments = file.segments();
  return std::any_of(segments.begin(), segments.end(), [&](const elf::Segment& segment) {
    return address >= segment.address && address - segment.address < segment.memory_bytes;
  });
}

// A library's exported data may be in the program instead (a copy relocation), which the library's file does not show.
Result<std::uint64_t> address_of_data(const std::string& symbol, const plan::Found& place) {
  const elf::ElfFile& file = *place.file;
  const std::vector<std::uint64_t> addresses = file.addresses_of(symbol);
  if (addresses.empty())
    return Error{.code = Code::not_found,
                 .text = "no symbol '" + symbol + "' in " + file.path(),
                 .help = file.has_names() ? "" : "the file is stripped: only its dynamic symbols are known"};
  if (addresses.size() > 1) return ambiguous(symbol, addresses, place);
  const auto found = file.find_any(symbol);
  if (found && found->dynamic && found->binding != elf::Binding::local && !found->is_function && !file.is_program())
    return Error{.code = Code::refused,
                 .text = "'" + symbol + "' is exported by a library: the program may use a copy of its own",
                 .help = "the library's is @+" + hex(distance(addresses[0], place))};
  return addresses[0];
}

Error no_marker(const ProbeSpec& spec, const std::vector<std::string>& names, bool has_libraries) {
  const spec::Place& place = spec.place;
  elf::NearNames near(place.marker);
  for (const std::string& name : names) near.offer(name);
  const std::vector<std::string> best = near.best(3);
  std::string help = best.empty() ? "" : "close:";
  for (const std::string& name : best) help += " " + name;
  return at_column(spec, place.place_column,
                   Error{.code = Code::not_found,
                         .text = "no marker '" + place.provider + ":" + place.marker + "' in " + place.path +
                                 (has_libraries ? " or its libraries" : ""),
                         .help = std::move(help)});
}

// An error about a file reads on from its name.
Error about(const std::string& path, Error error) {
  error.text.insert(0, path + ": ");
  return error;
}

// An error of one event, at the place unless it has a column of its own.
Error blamed(const ProbeSpec& spec, const Error& error) {
  return error.column < 0 ? at_column(spec, spec.place.place_column, error) : error;
}

}  // namespace

// The names of a stripped file may be in the debug information that a server has.
bool LocationResolver::fetch_names(const ProbeSpec& spec) {
  ProbeSpec copy = spec;
  if (spec.place.symbol.empty() || !find_object(copy)) return false;
  const auto file = files_.open(copy.place.path);
  if (!file || (*file)->has_names() || !asked_.insert((*file)->path()).second) return false;
  if (!fetch_debug_information(**file)) return false;
  files_.forget(*file);
  return true;
}

Result<LocationResolver::Specs> LocationResolver::operator()(ProbeSpec spec) {
  source_ = spec.place.offset == 0 ? take_source(spec.place.symbol) : std::string();
  auto found = find(spec);
  const bool is_unknown = !found && found.error().code == Code::not_found && !spec.place.is_generated;
  if (is_unknown && fetch_names(spec)) found = find(spec);
  if (found || !is_unknown) return found;
  Error error = found.error();
  if (const std::string elsewhere = object_with(spec); !elsewhere.empty())
    error.help = elsewhere + " has one: -p " + elsewhere + ":" + spec.place.symbol;
  return error;
}

Result<LocationResolver::Specs> LocationResolver::find(ProbeSpec spec) {
  if (spec.place.is_generated) {
    RETURN_IF_ERROR(check_generated(spec));
    return Specs{std::move(spec)};
  }
  RETURN_IF_ERROR(find_object(spec));
  if (!spec.place.marker.empty()) return at_markers(spec);
  if (const Status found = find_function(spec); !found) return with_inlining(spec, found.error());
  if (spec.place.is_address) {
    const auto found = plan::look_up(spec, files_);
    if (!found) return found.error();
    spec.place.offset = found->offset;
    spec.place.is_address = false;
  }
  if (!spec.place.source.empty()) return at_line(std::move(spec));
  auto own = at_symbol(spec);
  if (!source_.empty()) return own ? of_source(spec, own.take()) : std::move(own);
  return with_copies(std::move(spec), std::move(own));
}

// The functions of a name or a pattern, or one place by its offset.
Result<LocationResolver::Specs> LocationResolver::at_symbol(ProbeSpec spec) {
  const bool has_data = std::any_of(spec.arguments.begin(), spec.arguments.end(), [](const spec::Argument& argument) {
    return is_in_file(argument) || !argument.variable.empty();
  });
  if (spec.place.symbol.empty() && !has_data) return Specs{std::move(spec)};
  if (spec.is_bare && spec.place.offset == 0)
    if (auto file = files_.open(spec.place.path); file)
      if (const auto functions = functions_of(spec, **file); functions.size() > 1)
        return expand(spec, *file, functions, {});
  auto found = plan::look_up(spec, files_);
  if (!found) {
    const bool is_unknown = !spec.place.symbol.empty() && found.error().column == spec.place.place_column;
    auto file = files_.open(spec.place.path);
    if (!is_unknown || !file || found.error().code != Code::not_found || !is_pattern(spec.place.symbol))
      return found.error();
    return expand(spec, *file, matching_functions(**file, spec.place.symbol), found.error().help);
  }
  RETURN_IF_ERROR(pass_prologue(spec, *found));
  if (!spec.place.symbol.empty())
    set_place(spec, spec.place.symbol, name_of_function(spec, *found->file),
              {found->offset, found->address, found->is_ifunc});
  RETURN_IF_ERROR(find_data(spec, *found));
  return Specs{std::move(spec)};
}

// A program's own markers and those of its libraries; of any other file its own.
Result<std::vector<LoadedObject>> LocationResolver::objects_with_markers(const ProbeSpec& spec) {
  const spec::Place& place = spec.place;
  const auto own = files_.open(place.path);
  if (!own) return at_column(spec, place.path_column, about(place.path, own.error()));
  const bool is_program = (*own)->is_program() || !(*own)->interpreter().empty();
  if (!place.names_object && is_program && !objects_for(place).empty()) return objects_for(place);
  return std::vector<LoadedObject>{{place.path, {}}};
}

Result<std::vector<marker::MarkerEvent>> LocationResolver::events_of_markers(const ProbeSpec& spec) {
  const auto objects = objects_with_markers(spec);
  if (!objects) return objects.error();
  std::vector<marker::MarkerEvent> events;
  std::vector<std::string> names;
  for (const LoadedObject& object : *objects) {
    const auto file = files_.open(object.path);
    if (!file) continue;
    const marker::Notes found = spec.place.is_mark ? marker::read_marks(**file) : marker::read_notes(**file);
    for (const std::string& problem : found.problems) note(object.path + " has a marker that is not known: " + problem);
    for (const marker::Marker& one : found.markers) names.push_back(one.name);
    marker::add_matches(spec, object.path, *file, found, events);
  }
  if (events.empty()) return no_marker(spec, names, objects->size() > 1);
  for (std::string& line : marker::notes_of_formats(events)) note(std::move(line));
  return events;
}

// Places that cannot be probed, unless that is all of them: then an error says why.
Status LocationResolver::leave_out_places(const ProbeSpec& spec, marker::MarkerEvent& event) {
  Status first = ok();
  const std::size_t all = event.places.size();
  std::erase_if(event.places, [&](const marker::MarkerPlace& place) {
    const auto site = plan::site_at(place.file, place.marker.offset);
    Status can = site ? (can_probe_ ? can_probe_(spec, *site) : ok()) : Status(site.error());
    const bool is_left_out = !can;
    if (is_left_out && first) first = std::move(can);
    return is_left_out;
  });
  if (first) return ok();
  if (event.places.empty()) return first;
  note(std::to_string(all - event.places.size()) + " of " + std::to_string(all) + " places of " + event.group + "/" +
       event.event + " cannot be probed: " + first.error().text);
  return ok();
}

// Of a pattern, events that cannot be had are left out.
Result<LocationResolver::Specs> LocationResolver::at_markers(const ProbeSpec& spec) {
  auto events = events_of_markers(spec);
  if (!events) return events.error();
  const marker::FindData find = [this](const marker::MarkerPlace& place, ProbeSpec& one) {
    return find_data(one, {place.file, place.marker.offset, place.marker.address, false});
  };
  Specs specs;
  for (marker::MarkerEvent& event : *events) {
    const Status can = leave_out_places(spec, event);
    auto made = can ? marker::specs_of(spec, event, find, notes_) : Result<Specs>(can.error());
    if (!made && events->size() == 1) return blamed(spec, made.error());
    if (!made) note(event.group + "/" + event.event + " is left out: " + made.error().text);
    if (made) specs.insert(specs.end(), made->begin(), made->end());
  }
  if (specs.empty())
    return at_column(spec, spec.place.place_column,
                     Error{.code = Code::refused, .text = "none of the markers can be recorded as it is written"});
  return specs;
}

// Whether a function that matches a pattern can be probed.
Status LocationResolver::check_match(const ProbeSpec& spec, const File& file) {
  if (!spec.place.found) return Error{.text = "it is outside the file"};
  auto site = plan::site_at(file, spec.place.found->offset);
  if (!site) return site.error();
  site->is_ifunc = spec.place.found->is_ifunc;
  return can_probe_ ? can_probe_(spec, *site) : ok();
}

// `help`: for a pattern that matches nothing, which may have been meant as a name.
Result<LocationResolver::Specs> LocationResolver::expand(const ProbeSpec& pattern, const File& file,
                                                         const std::vector<elf::Symbol>& functions,
                                                         const std::string& help) {
  const spec::Place& place = pattern.place;
  const std::string what = "'" + place.symbol + "' in " + place.path;
  if (place.offset != 0)
    return at_column(pattern, place.place_column, Error{.text = "a pattern of functions cannot have an offset"});
  Specs specs;
  std::size_t left_out = 0;
  std::string reason;
  for (const elf::Symbol& symbol : functions) {
    ProbeSpec spec = pattern;
    const auto offset = file->offset_of_address(symbol.address);
    if (offset) set_place(spec, symbol.name, symbol.name, {*offset, symbol.address, symbol.is_ifunc});
    if (const Status can = check_match(spec, file); !can) {
      ++left_out;
      if (reason.empty()) reason = can.error().text;
      continue;
    }
    plan::Found found{file, *offset, symbol.address, symbol.is_ifunc};
    RETURN_IF_ERROR(pass_prologue(spec, found));
    set_place(spec, symbol.name, symbol.name, {found.offset, found.address, found.is_ifunc});
    RETURN_IF_ERROR(find_data(spec, found));
    specs.push_back(std::move(spec));
  }
  if (functions.empty())
    return at_column(pattern, place.place_column,
                     Error{.code = Code::not_found, .text = "no function matches " + what, .help = help});
  if (specs.empty())
    return at_column(pattern, place.place_column,
                     Error{.code = Code::refused, .text = "no function of " + what + " can be probed: " + reason});
  if (left_out != 0)
    notes_.push_back(std::to_string(left_out) + " of " + std::to_string(functions.size()) + " functions of " + what +
                     " cannot be probed: " + reason);
  return specs;
}

// Data is addressed relative to the probe, because the load address moves both.
Status LocationResolver::find_data(ProbeSpec& spec, const plan::Found& place, std::optional<std::uint32_t> copy) {
  RETURN_IF_ERROR(check_go_arguments(spec, place));
  RETURN_IF_ERROR(find_variables(spec, place, copy));
  for (spec::Argument& argument : spec.arguments) {
    if (!is_in_file(argument)) continue;
    if (!argument.object.empty()) {
      RETURN_IF_ERROR(find_in_object(spec, argument));
      continue;
    }
    const auto refuse = [&](Error error) { return at_column(spec, argument.symbol_column, std::move(error)); };
    if (place.is_ifunc)
      return refuse(Error{.code = Code::refused,
                          .text = "'" + argument.body + "' has no fixed distance from an IFUNC's implementation"});
    if (argument.address) {
      if (!is_mapped(*place.file, *argument.address))
        return refuse(
            Error{.text = "address " + hex(*argument.address) + " is not in a segment of " + place.file->path(),
                  .help = "addresses are the file's own, as nm prints them"});
      for (spec::Step& step : argument.steps)  // of several the others are counted from the first
        if (step.kind == spec::StepKind::file_offset) step.value += distance(*argument.address, place);
      argument.address.reset();
      continue;
    }
    auto known = data_.find({place.file, argument.symbol});
    if (known == data_.end()) {
      const auto address = address_of_data(argument.symbol, place);
      if (!address) return refuse(address.error());
      known = data_.emplace(std::pair(place.file, argument.symbol), *address).first;
    }
    argument.steps.front().value += distance(known->second, place);
    argument.symbol.clear();
  }
  return ok();
}

}  // namespace uprobe
