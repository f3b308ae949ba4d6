// SPDX-License-Identifier: MIT
// The lines and variables of a function, as definitions.
#include <algorithm>
#include <sstream>

#include "engine/base/regular_file.h"
#include "engine/plan/resolve.h"
#include "engine/resolve/debug_reader.h"
#include "engine/resolve/programs.h"
#include "engine/spec/name.h"

namespace uprobe {
namespace {

constexpr std::size_t kTextColumn = 40;

struct Subject {
  std::string path;
  plan::Found found;
  DebugReader debug;
  std::vector<dwarf::InlinedCopy> copies;  // of a function that has no code of its own
};

// A function that has been inlined wherever it is called; else `missing`.
Result<Subject> look_up_inlined(std::string path, const std::string& function, plan::FileCache& files, Error missing) {
  const auto file = files.open(path);
  if (!file || missing.code != Code::not_found) return missing;
  auto debug = DebugReader::open(*file);
  if (!debug) return missing;
  auto copies = debug->copies_of(function);
  if (!copies || copies->empty()) return missing;
  return Subject{std::move(path), plan::Found{*file, 0, 0, false}, debug.take(), copies.take()};
}

Result<Subject> look_up(const std::string& object, const std::string& function) {
  auto path = find_object_file(object);
  if (!path) return path.error();
  plan::FileCache files;
  spec::ProbeSpec spec;
  spec.place.path = *path;
  spec.place.symbol = function;
  auto found = plan::look_up(spec, files);
  if (!found) {
    Error error = found.error();
    error.where.clear();
    error.column = -1;
    return look_up_inlined(path.take(), function, files, std::move(error));
  }
  auto debug = DebugReader::open(found->file);
  if (!debug) return debug.error();
  return Subject{path.take(), found.take(), debug.take(), {}};
}

std::string event_of(const std::string& function) { return spec::symbol_event_name({.path = {}, .symbol = function}); }

// The source's text at the path where it was compiled, if it is text of a reasonable size; without control characters. Debug
// information may name any file.
std::vector<std::string> read_source(const std::string& path) {
  constexpr std::size_t kMostBytes = 16 << 20, kMostColumns = 4096;
  std::vector<std::string> lines;
  const auto text = read_regular(path, kMostBytes);
  if (!text) return lines;
  std::istringstream rest(*text);
  for (std::string line; std::getline(rest, line);) {
    line.resize(std::min(line.size(), kMostColumns));
    std::replace_if(
        line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
    line.erase(0, line.find_first_not_of(' '));
    lines.push_back(line);
  }
  return lines;
}

// The last part of the source's path, unless several sources have it.
std::string short_name(const DebugReader& debug, const dwarf::CodeLine& line) {
  const std::string name = line.file.substr(line.file.rfind('/') + 1);
  return debug.find_line(name, line.line) ? name : line.file;
}

Result<std::vector<std::string>> definitions_of_lines(const Subject& subject, const std::string& function) {
  std::vector<std::string> definitions, text;
  std::string read;
  const auto lines =
      subject.copies.empty() ? subject.debug.lines_of(subject.found.address) : subject.debug.lines_of_copies();
  if (!lines) return lines.error();
  for (const dwarf::CodeLine& line : *lines) {
    if (line.file != read) text = read_source(read = line.file);
    const std::string number = std::to_string(line.line);
    std::string definition = "p:" + event_of(function + "_" + number) + " " + subject.path + ":" +
                             short_name(subject.debug, line) + ":" + number;
    const auto index = static_cast<std::size_t>(line.line) - 1;
    if (index < text.size()) {
      definition.resize(std::max(definition.size(), kTextColumn), ' ');
      definition += "  # " + text[index];
    }
    definitions.push_back(std::move(definition));
  }
  return definitions;
}

std::vector<std::string> with_variables(std::string definition, const std::vector<dwarf::NamedVariable>& variables) {
  std::vector<std::string> comments;
  for (const dwarf::NamedVariable& variable : variables) {
    if (variable.problem.empty()) definition += " " + variable.name;
    comments.push_back("# " + variable.type + " " + variable.name +
                       (variable.problem.empty() ? "" : ": " + variable.problem));
  }
  comments.insert(comments.begin(), std::move(definition));
  return comments;
}

// As a bare place, which means the copies; of the first one whose start is known.
Result<std::vector<std::string>> definition_of_copies(const Subject& subject, const std::string& function) {
  const auto first = std::ranges::find_if(subject.copies, [](const auto& copy) { return copy.problem.empty(); });
  if (first == subject.copies.end())
    return Error{.code = Code::refused,
                 .text = "'" + function + "' is inlined wherever it is called, and none of its copies can be probed: " +
                         subject.copies.front().problem};
  const auto variables = subject.debug.variables_of_copy(first->number);
  if (!variables) return variables.error();
  return with_variables(subject.path + ":" + function, *variables);
}

Result<std::vector<std::string>> definition_of_variables(const Subject& subject, const std::string& function) {
  if (!subject.copies.empty()) return definition_of_copies(subject, function);
  const auto place = subject.debug.after_prologue(subject.found.address);
  if (!place) return place.error();
  const auto variables = subject.debug.variables_at(*place);
  if (!variables) return variables.error();
  return with_variables("p:" + event_of(function) + " " + subject.path + ":" + function, *variables);
}

}  // namespace

Result<std::vector<std::string>> list_source(const std::string& object, const std::string& function, SourceList what) {
  const auto subject = look_up(object, function);
  if (!subject) return subject.error();
  auto lines = what == SourceList::lines ? definitions_of_lines(*subject, function)
                                         : definition_of_variables(*subject, function);
  if (!lines) return lines.error();
  if (lines->empty())
    return Error{.code = Code::not_found,
                 .text = "the debug information of " + object + " has no function '" + function + "'"};
  return lines;
}

}  // namespace uprobe
