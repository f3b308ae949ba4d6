// SPDX-License-Identifier: MIT
// The part of the resolver that needs debug information: source lines and variables.
#include <algorithm>

#include "engine/base/text.h"
#include "engine/lex/registers.h"
#include "engine/resolve/locations.h"
#include "engine/spec/argument.h"
#include "engine/spec/messages.h"
#include "engine/spec/name.h"
#include "engine/spec/words_2009.h"

namespace uprobe {
namespace {

using spec::ProbeSpec;

const spec::Argument* first_variable(const ProbeSpec& spec) {
  const auto found = std::find_if(spec.arguments.begin(), spec.arguments.end(),
                                  [](const spec::Argument& argument) { return !argument.variable.empty(); });
  return found == spec.arguments.end() ? nullptr : &*found;
}

// Without debug information "arg1" is the first argument too.
Error without_variables(Error error, const std::string& variable) {
  const bool is_number =
      variable.size() == 4 && variable.starts_with("arg") && variable[3] >= '1' && variable[3] <= '6';
  if (is_number) error.help = "$" + variable + " needs none: $arg1 is the first argument";
  return error;
}

// The addresses of a line's code. A name without a '.' is a function's, and its line 0 the one where it is declared.
Result<std::vector<std::uint64_t>> addresses_of(const DebugReader& debug, const spec::Place& place) {
  if (place.source.find_first_of("./") != std::string::npos) return debug.find_line(place.source, place.line);
  const auto declared = debug.declaration_of(place.source);
  if (!declared) {  // the name of a source file may have no '.' either
    auto found = debug.find_line(place.source, place.line);
    return found ? std::move(found) : declared.error();
  }
  const std::int64_t line = std::int64_t{declared->line} + place.line;
  Result<std::vector<std::uint64_t>> found =
      line > INT32_MAX ? Error{.code = Code::not_found}
                       : debug.find_line(declared->file, static_cast<int>(line), place.source);
  if (found) return found;
  return Error{.code = Code::not_found,
               .text = "no code at " + place.source + ":" + std::to_string(place.line),
               .help = "'" + place.source + "' is declared at " + declared->file + ":" +
                       std::to_string(declared->line) + "; --lines=" + place.source + " lists its lines"};
}

}  // namespace

Result<const DebugReader*> LocationResolver::debug_info(const File& file) {
  if (const auto known = debug_.find(file); known != debug_.end()) return &known->second;
  auto opened = DebugReader::open(file);
  if (!opened) return opened.error();
  return &debug_.emplace(file, opened.take()).first->second;
}

// One event, with a probe at each place of the line's code.
Result<LocationResolver::Specs> LocationResolver::at_line(ProbeSpec spec) {
  const auto refuse = [&](Error error) { return at_column(spec, spec.place.place_column, std::move(error)); };
  auto file = files_.open(spec.place.path);
  if (!file) {
    Error error = file.error();
    error.text = spec.place.path + ": " + error.text;
    return at_column(spec, spec.place.path_column, std::move(error));
  }
  if (spec.is_return)
    return refuse(Error{.code = Code::refused, .text = "a return probe belongs to a function, not to a line"});
  const auto debug = debug_info(*file);
  if (!debug) return refuse(debug.error());
  const auto addresses = addresses_of(**debug, spec.place);
  if (!addresses) return refuse(addresses.error());
  Specs specs;
  for (const std::uint64_t address : *addresses) {
    const auto offset = (*file)->offset_of_address(address);
    if (!offset) continue;
    ProbeSpec one = spec;
    one.place.found = spec::FoundSymbol{*offset, address, false};
    one.place.offset = *offset;
    one.place.source.clear();
    if (one.has_automatic_name && !one.is_bare) one.event = spec::automatic_name(one.place, false);
    RETURN_IF_ERROR(find_data(one, {*file, *offset, address, false}));
    specs.push_back(std::move(one));
  }
  return specs;
}

// A function's probe that shows variables is moved to where they have their values.
Status LocationResolver::pass_prologue(ProbeSpec& spec, plan::Found& found) {
  const spec::Argument* variable = first_variable(spec);
  moved_.clear();
  if (variable == nullptr) return ok();
  const auto refuse = [&](Error error) { return at_column(spec, variable->symbol_column, std::move(error)); };
  if (found.is_ifunc)
    return refuse(Error{.code = Code::refused, .text = "the implementation of an IFUNC has variables of its own"});
  const auto debug = debug_info(found.file);
  if (!debug) return refuse(without_variables(debug.error(), variable->variable));
  if (spec.is_return || spec.place.symbol.empty() || spec.place.offset != 0) return ok();
  const auto body = (*debug)->after_prologue(found.address);
  if (!body) return refuse(body.error());
  const auto offset = found.file->offset_of_address(*body);
  if (*body == found.address || !offset) return ok();
  moved_.push_back(spec.place.symbol + " is probed after its prologue, at +" + hex(*body - found.address) +
                   ", where its variables are");
  found.address = *body;
  found.offset = *offset;
  return ok();
}

// The arguments for "$vars" or "$params": one for each variable that can be fetched there, unless an argument has its name
// already.
Result<std::vector<spec::Argument>> LocationResolver::variables_for(const spec::Argument& group, const ProbeSpec& spec,
                                                                    const plan::Found& place) {
  const auto refuse = [&](std::string text) {
    return at_column(spec, group.column, Error{.code = Code::refused, .text = std::move(text)});
  };
  if (group.has_type || !group.name.starts_with("arg"))
    return refuse(group.variable + " stands for several arguments, which have names and types of their own");
  const auto debug = debug_info(place.file);
  if (!debug) return at_column(spec, group.symbol_column, debug.error());
  const auto known = (*debug)->variables_at(place.address);
  if (!known) return at_column(spec, group.symbol_column, known.error());
  std::vector<spec::Argument> found;
  for (const dwarf::NamedVariable& variable : *known) {
    const auto has_name = [&](const spec::Argument& argument) { return argument.name == variable.name; };
    const bool is_wanted = variable.is_parameter || group.variable == "$vars";
    if (!is_wanted || !variable.problem.empty() || !spec::can_be_argument(variable.name)) continue;
    if (std::ranges::any_of(spec.arguments, has_name)) continue;
    found.push_back({.name = variable.name,
                     .body = variable.name,
                     .symbol_column = group.symbol_column,
                     .variable = variable.name,
                     .column = group.column});
  }
  if (found.empty()) return refuse("no variable can be fetched here");
  if (found.size() + spec.arguments.size() > shared::kMaxArguments)
    return refuse(std::string(spec::message::kTooManyArguments));
  return found;
}

Status LocationResolver::expand_variables(ProbeSpec& spec, const plan::Found& place) {
  for (std::size_t i = 0; i < spec.arguments.size(); ++i) {
    if (!spec::is_group_of_variables(spec.arguments[i].variable)) continue;
    auto found = variables_for(spec.arguments[i], spec, place);
    if (!found) return found.error();
    const auto at = spec.arguments.erase(spec.arguments.begin() + static_cast<std::ptrdiff_t>(i));
    spec.arguments.insert(at, found->begin(), found->end());
    i += found->size() - 1;
  }
  return ok();
}

Status LocationResolver::find_variables(ProbeSpec& spec, const plan::Found& place) {
  if (!spec.is_return) RETURN_IF_ERROR(expand_variables(spec, place));
  for (spec::Argument& argument : spec.arguments) {
    if (argument.variable.empty()) continue;
    if (spec.is_return)
      return at_column(spec, argument.symbol_column,
                       Error{.code = Code::refused,
                             .text = "a function's variables no longer exist when it has returned",
                             .help = "$retval is the value that it returned"});
    const auto debug = debug_info(place.file);
    if (!debug) return at_column(spec, argument.symbol_column, debug.error());
    if (Status found = (*debug)->find_variable(place.address, argument); !found) {
      Error error = found.error();
      if (spec::find_register(argument.variable, spec::RegisterNames::extended))
        error.help = "did you mean '%" + argument.variable + "'?";
      if (const std::string modern = spec::modern_word(argument.variable); !modern.empty())
        error.help = "did you mean '" + modern + "'? With --style=2009 it is called '" + argument.variable + "'";
      const int column = argument.symbol_column + std::max(error.column, 0);
      return at_column(spec, column, std::move(error));
    }
    argument.variable.clear();
  }
  notes_.insert(notes_.end(), moved_.begin(), moved_.end());
  moved_.clear();
  return ok();
}

}  // namespace uprobe
