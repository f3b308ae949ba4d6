// SPDX-License-Identifier: MIT
// The part of the resolver that needs debug information: source lines, inlined copies, variables, and the functions of one source
// ("f@file.c", perf's and SystemTap's).
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "engine/base/text.h"
#include "engine/lex/registers.h"
#include "engine/resolve/locations.h"
#include "engine/spec/argument.h"
#include "engine/spec/messages.h"
#include "engine/spec/name.h"
#include "engine/spec/parse.h"
#include "engine/spec/place.h"
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

// Other tools' words for all variables.
bool is_word_for_all(const std::string& variable) {
  static constexpr std::array<std::string_view, 6> kWords = {"*", "all", "args", "params", "vars", "locals"};
  return std::find(kWords.begin(), kWords.end(), variable) != kWords.end();
}

// What a name may have been meant for that is no variable; empty: nothing.
std::string meant_by(const spec::Argument& argument, const ProbeSpec& spec) {
  static constexpr std::array<std::string_view, 5> kResults = {"retval", "ret", "return", "result", "exit"};
  static constexpr std::array<std::string_view, 5> kTimes = {"latency", "elapsed", "duration", "time", "nsecs"};
  const auto is_in = [&](const auto& words) { return std::ranges::find(words, argument.variable) != words.end(); };
  static constexpr std::array<std::string_view, 4> kInEachLine = {"pid", "tid", "cpu", "timestamp"};
  static constexpr std::array<std::string_view, 5> kStacks = {"ustack", "kstack", "stack", "backtrace", "bt"};
  if (argument.variable == "comm") return "did you mean '$comm'?";
  if (is_in(kInEachLine)) return "each line shows it; conditions know it as common_pid, cpu and comm";
  if (is_in(kStacks)) return "--trigger=stacktrace shows the stack";
  if (is_in(kTimes) && spec.is_return) return "did you mean '$latency'? It is in nanoseconds";
  if (is_in(kResults) && spec.is_return) return "did you mean '$retval'?";
  if (is_in(kTimes) || is_in(kResults))
    return "a return has it: -r '" + spec.place.symbol + (is_in(kTimes) ? " $latency'" : " $retval'");
  return {};
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
                                                                    const plan::Found& place,
                                                                    std::optional<std::uint32_t> copy) {
  const auto refuse = [&](std::string text) {
    return at_column(spec, group.column, Error{.code = Code::refused, .text = std::move(text)});
  };
  if (group.has_type || !group.name.starts_with("arg"))
    return refuse(group.variable + " stands for several arguments, which have names and types of their own");
  const auto debug = debug_info(place.file);
  if (!debug) return at_column(spec, group.symbol_column, debug.error());
  const auto known = copy ? (*debug)->variables_of_copy(*copy) : (*debug)->variables_at(place.address);
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

Status LocationResolver::expand_variables(ProbeSpec& spec, const plan::Found& place,
                                          std::optional<std::uint32_t> copy) {
  for (std::size_t i = 0; i < spec.arguments.size(); ++i) {
    if (!spec::is_group_of_variables(spec.arguments[i].variable)) continue;
    auto found = variables_for(spec.arguments[i], spec, place, copy);
    if (!found) return found.error();
    const auto at = spec.arguments.erase(spec.arguments.begin() + static_cast<std::ptrdiff_t>(i));
    spec.arguments.insert(at, found->begin(), found->end());
    i += found->size() - 1;
  }
  return ok();
}

Status LocationResolver::find_variables(ProbeSpec& spec, const plan::Found& place, std::optional<std::uint32_t> copy) {
  if (!spec.is_return) RETURN_IF_ERROR(expand_variables(spec, place, copy));
  for (spec::Argument& argument : spec.arguments) {
    if (argument.variable.empty()) continue;
    const auto debug = debug_info(place.file);
    if (spec.is_return && (!debug || spec::is_group_of_variables(argument.variable)))
      return at_column(spec, argument.symbol_column,
                       Error{.code = Code::refused,
                             .text = "a function's variables no longer exist when it has returned",
                             .help = meant_by(argument, spec).empty() ? "$retval is the value that it returned"
                                                                      : meant_by(argument, spec)});
    if (!debug) return at_column(spec, argument.symbol_column, debug.error());
    if (Status found = spec.is_return ? (*debug)->find_result(place.address, argument)
                       : copy         ? (*debug)->find_copys_variable(*copy, argument)
                                      : (*debug)->find_variable(place.address, argument);
        !found) {
      Error error = found.error();
      if (spec::find_register(argument.variable, spec::RegisterNames::extended))
        error.help = "did you mean '%" + argument.variable + "'?";
      if (const std::string meant = meant_by(argument, spec); !meant.empty()) error.help = meant;
      if (is_word_for_all(argument.variable)) error.help = "$params is every parameter, $vars every variable";
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

namespace {

// A name alone means all that its function was compiled to.
bool means_copies(const ProbeSpec& spec) {
  const bool is_name = spec.is_bare && !spec.place.symbol.empty() && spec.place.offset == 0;
  // Versions ("f@V1") and entries of the procedure linkage table ("f@plt") are symbols'.
  const bool is_symbols = spec.place.symbol.find('@') != std::string::npos;
  return is_name && !is_symbols && spec.place.source.empty() && !spec.place.found;
}

// What an inlined copy has not, since it is no call; empty: nothing of it is wanted.
std::string lack_of_copies(const ProbeSpec& spec, bool has_own) {
  if (spec.is_return || spec.sums_calls) return "only a function by its symbol has a return that can be probed";
  const bool is_numbered = !has_own && spec.parameters && !spec.parameters->arguments.empty();
  const auto asks = [](const spec::Argument& argument) { return argument.body.find("$arg") != std::string::npos; };
  const bool asks_by_number = is_numbered || std::ranges::any_of(spec.arguments, asks);
  return asks_by_number ? "their arguments are in no fixed registers" : "";
}

// Gives the copies the variables that "$vars" has stood for elsewhere: one event has one record.
void take_variables(ProbeSpec& spec, const ProbeSpec& from) {
  const auto is_group = [](const spec::Argument& one) { return spec::is_group_of_variables(one.variable); };
  const auto group = std::ranges::find_if(spec.arguments, is_group);
  if (group == spec.arguments.end()) return;
  std::vector<spec::Argument> arguments;
  arguments.reserve(from.arguments.size());
  for (const spec::Argument& argument : from.arguments) {
    const auto same = std::ranges::find(spec.arguments, argument.name, &spec::Argument::name);
    if (same != spec.arguments.end() && !is_group(*same))
      arguments.push_back(*same);
    else
      arguments.push_back({.name = argument.name,
                           .body = argument.name,
                           .symbol_column = group->symbol_column,
                           .variable = argument.name,
                           .column = group->column});
  }
  spec.arguments = std::move(arguments);
}

// "3 inlined copies and 1 clone"
std::string copies_in_words(const std::vector<dwarf::InlinedCopy>& copies) {
  const auto clones = static_cast<std::size_t>(std::ranges::count(copies, true, &dwarf::InlinedCopy::is_clone));
  const std::size_t inlined = copies.size() - clones;
  std::string text = inlined == 0 ? "" : std::to_string(inlined) + (inlined == 1 ? " inlined copy" : " inlined copies");
  if (clones == 0) return text;
  return text + (text.empty() ? "" : " and ") + std::to_string(clones) + (clones == 1 ? " clone" : " clones");
}

// Copies that are not probed, by reason.
class LeftOut {
 public:
  void add(const Error& why) {
    ++by_reason_[why.text];
    if (!first_ && why.column >= 0) first_ = why;
  }
  bool empty() const { return by_reason_.empty(); }
  // Of a mistake in the definition.
  const std::optional<Error>& first() const { return first_; }
  std::string text() const {
    std::string text;
    for (const auto& [reason, count] : by_reason_)
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " (" + reason + ")";
    return text;
  }

 private:
  std::map<std::string, std::size_t> by_reason_;
  std::optional<Error> first_;
};

// "'f' is probed with 2 of its 3 inlined copies; left out: 1 (no known start)"
std::string said_of_copies(const std::string& function, const std::vector<dwarf::InlinedCopy>& copies,
                           std::size_t probed, bool has_own, const std::string& left_out) {
  const std::string name = "'" + function + "'", all = copies_in_words(copies);
  if (probed == 0) return name + " is probed without its " + all + ": " + left_out;
  const std::string some = (left_out.empty() ? "its " : std::to_string(probed) + " of its ") + all;
  const std::string text =
      has_own ? name + " is probed with " + some
              : name + " has no code of its own: " + some + (copies.size() == 1 ? " is probed" : " are probed");
  return left_out.empty() ? text : text + "; left out: " + left_out;
}

}  // namespace

// Of what is here; nothing is fetched for them, and what cannot be read has none.
std::vector<dwarf::InlinedCopy> LocationResolver::copies_of(const File& file, const std::string& function) {
  if (without_copies_.contains(file)) return {};
  if (!debug_.contains(file)) {
    auto opened = DebugReader::open_here(file);
    if (!opened) return without_copies_.insert(file), std::vector<dwarf::InlinedCopy>();
    debug_.emplace(file, opened.take());
  }
  auto copies = debug_.at(file).copies_of(function);
  if (copies) return copies.take();
  note("'" + function + "': its inlined copies are not looked for: " + copies.error().text);
  debug_.erase(file);  // the reader may have ended
  return {};
}

// The first object in which a function that no object has was inlined.
bool LocationResolver::choose_inlined(ProbeSpec& spec, const std::vector<LoadedObject>& objects) {
  if (!means_copies(spec) || is_pattern(spec.place.symbol)) return false;
  for (const LoadedObject& object : objects) {
    const auto file = files_.open(object.path);
    if (!file || copies_of(*file, spec.place.symbol).empty()) continue;
    spec.place.path = object.path;
    const spec::FileState state = spec::look_up_file(object.path);
    spec.place.device = state.device, spec.place.inode = state.inode;
    return true;
  }
  return false;
}

Result<ProbeSpec> LocationResolver::at_copy(ProbeSpec spec, const File& file, const dwarf::InlinedCopy& copy) {
  if (!copy.problem.empty()) return Error{.code = Code::refused, .text = copy.problem};
  const auto offset = file->offset_of_address(copy.address);
  if (!offset) return Error{.code = Code::refused, .text = "outside of the file"};
  const auto site = plan::site_at(file, *offset);
  if (!site) return site.error();
  if (can_probe_) RETURN_IF_ERROR(can_probe_(spec, *site));
  spec.place.found = spec::FoundSymbol{*offset, copy.address, false};
  spec.place.offset = *offset;
  spec.place.symbol.clear();
  RETURN_IF_ERROR(find_data(spec, {file, *offset, copy.address, false}, copy.number));
  return spec;
}

// Why a function is unknown that the source has.
Error LocationResolver::with_inlining(const ProbeSpec& spec, Error error) {
  const std::string& symbol = spec.place.symbol;
  if (error.code != Code::not_found || spec.is_bare || symbol.empty() || is_pattern(symbol)) return error;
  const auto file = files_.open(spec.place.path);
  if (file && !copies_of(*file, symbol).empty())
    error.help = "it is inlined wherever it is called: its name alone, -p " + symbol + ", means the copies";
  return error;
}

// A bare place is its function, as far as the file has it as such, and all inlined copies that begin at a known place.
Result<LocationResolver::Specs> LocationResolver::with_copies(ProbeSpec spec, Result<Specs> own) {
  const bool has_own = own && !own->empty();
  const bool is_unknown = !own && own.error().code == Code::not_found && !is_pattern(spec.place.symbol);
  if (!own && !spec.is_bare) return with_inlining(spec, own.error());
  if (!means_copies(spec) || (!has_own && !is_unknown)) return own;
  if (has_own && own->front().place.found && own->front().place.found->is_ifunc) return own;
  const auto file = files_.open(spec.place.path);
  if (!file) return own;
  const std::vector<dwarf::InlinedCopy> copies = copies_of(*file, spec.place.symbol);
  if (copies.empty()) return own;
  const std::string name = "'" + spec.place.symbol + "'", all = copies_in_words(copies);
  if (const std::string lack = lack_of_copies(spec, has_own); !lack.empty()) {
    if (!has_own)
      return at_column(
          spec, spec.place.place_column,
          Error{.code = Code::refused,
                .text = name + " has no code of its own, and its " + all + " cannot be probed so: " + lack});
    note(name + ": its " + all + (copies.size() == 1 ? " is" : " are") + " not seen: " + lack);
    return own;
  }
  Specs specs = has_own ? own.take() : Specs();
  const std::size_t before = specs.size();
  spec.event = has_own ? specs.front().event : spec::bare_event_name(spec.place, spec.place.symbol);
  LeftOut left_out;
  for (const dwarf::InlinedCopy& copy : copies) {
    if (!specs.empty()) take_variables(spec, specs.front());
    auto made = at_copy(spec, *file, copy);
    if (made)
      specs.push_back(made.take());
    else
      left_out.add(made.error());
  }
  if (specs.empty())
    return left_out.first() ? *left_out.first()
                            : at_column(spec, spec.place.place_column,
                                        Error{.code = Code::refused,
                                              .text = name + " has no code of its own, and none of its " + all +
                                                      " can be probed: " + left_out.text()});
  note(said_of_copies(spec.place.symbol, copies, specs.size() - before, has_own, left_out.text()));
  return specs;
}

namespace {

constexpr std::size_t kMostFunctions = 64;  // whose lines are looked through

}  // namespace

std::string take_source(std::string& symbol) {
  const std::size_t at = symbol.rfind('@');
  if (at == std::string::npos || at == 0 || !spec::is_source_name(std::string_view(symbol).substr(at + 1))) return {};
  std::string source = symbol.substr(at + 1);
  symbol.resize(at);
  return source;
}

// Copies of a function inside of others are left out: only the lines of whole functions are known here.
Result<LocationResolver::Specs> LocationResolver::of_source(const ProbeSpec& spec, Specs all) {
  const auto refuse = [&](Error error) { return at_column(spec, spec.place.place_column, std::move(error)); };
  if (all.size() > kMostFunctions)
    return refuse(Error{.code = Code::limit,
                        .text = std::to_string(all.size()) + " functions match, too many to look where each is from",
                        .help = source_ + ":LINE is one place"});
  const auto file = files_.open(spec.place.path);
  if (!file) return refuse(file.error());
  const auto debug = debug_info(*file);
  if (!debug) return refuse(debug.error());
  std::set<std::string> others;
  Specs found;
  for (ProbeSpec& one : all) {
    const auto lines = (*debug)->lines_of(one.place.found ? one.place.found->address : 0);
    if (!lines) return refuse(lines.error());
    const bool is_of_source = std::ranges::any_of(
        *lines, [&](const dwarf::CodeLine& line) { return dwarf::ends_with_path(line.file, source_); });
    if (is_of_source)
      found.push_back(std::move(one));
    else if (!lines->empty())
      others.insert(lines->front().file);
  }
  if (!found.empty()) return found;
  std::string help;
  for (const std::string& other : others) help += (help.empty() ? "there is one in " : ", ") + other;
  return refuse(Error{.code = Code::not_found,
                      .text = "no function '" + spec.place.symbol + "' of " + source_ + " in " + spec.place.path,
                      .help = std::move(help)});
}

}  // namespace uprobe
