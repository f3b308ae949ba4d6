// SPDX-License-Identifier: MIT
// A definition's skeleton: kind, place, name, arguments, in the kernel's order of reading.
#include "engine/spec/parse.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "engine/lex/suggest.h"
#include "engine/lex/words.h"
#include "engine/shared/layout.h"
#include "engine/spec/argument.h"
#include "engine/spec/messages.h"
#include "engine/spec/name.h"
#include "engine/spec/place.h"

namespace uprobe::spec {
namespace {

Error with_help(Error error, std::string help) {
  error.help = std::move(help);
  return error;
}

// If one of these checks fails, the kernel passes the line on to its other parsers, which end in an EINVAL without a message:
// the first word's letter, and whether there is a second word.
Status check_head(const Command& command, const ParseOptions& options) {
  if (command.size() == 0) return Error{.text = std::string(message::kEmpty), .err = EINVAL};
  const std::string_view head = command.word(0);
  if (head[0] == '-') return command.blame(0, 0, message::kDeletionHere);
  if (head[0] != 'p' && head[0] != 'r')
    return with_help(command.blame(0, 0, message::kNotADefinition), definition_help(head));
  if (!options.strict && head.size() > 1 && head[1] != ':')
    return with_help(command.blame(0, 1, message::kAfterKind), "there is no maximum of active return probes to set");
  if (command.size() < 2) {
    const std::string name(head.substr(std::min<std::size_t>(head.size(), 2)));
    return with_help(command.blame(0, head.size(), message::kNoPlace),
                     options.strict || name.empty() ? "" : std::string("-") + head[0] + " " + name);
  }
  if (command.size() - 2 > shared::kMaxArguments) return command.blame(2, 0, message::kTooManyArguments, E2BIG);
  return ok();
}

// The notes of the marker say what its arguments are.
ProbeSpec with_written(ProbeSpec spec, const Command& command) {
  for (std::size_t word = 2; word < command.size(); ++word)
    spec.written.push_back({std::string(command.word(word)), static_cast<int>(command.start(word))});
  return spec;
}

}  // namespace

// stat does not open the file: a fifo or a device is only examined.
FileState look_up_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {.err = errno, .is_regular = false};
  return {.is_regular = S_ISREG(status.st_mode), .device = status.st_dev, .inode = status.st_ino};
}

Status check_line(std::string_view line, std::size_t limit) {
  if (line.size() > limit) {
    return Error{.code = Code::limit,
                 .text = std::string(message::kLineTooLong),
                 .where = std::string(line),
                 .column = static_cast<int>(limit),
                 .help = std::to_string(line.size()) + " bytes; the limit is " + std::to_string(limit),
                 .err = EINVAL};
  }
  const auto refused = [&](std::size_t at, std::string_view what) {
    return Error{.text = std::string(what), .where = std::string(line), .column = static_cast<int>(at), .err = EINVAL};
  };
  if (const auto nul = line.find('\0'); nul != std::string_view::npos) return refused(nul, message::kHasNul);
  if (const auto end = line.find('\n'); end != std::string_view::npos) return refused(end, message::kSeveralLines);
  return ok();
}

Result<ProbeSpec> parse_definition(std::string_view line, const ParseOptions& options) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  RETURN_IF_ERROR(check_line(line));
  const Command command(line, options.strict ? Blanks::kernel : Blanks::ascii);
  RETURN_IF_ERROR(check_head(command, options));
  return parse_words(command, options, command.word(0)[0] == 'r');
}

Result<ProbeSpec> parse_words(const Command& command, const ParseOptions& options, bool is_return) {
  auto parsed = parse_place(command, options);
  if (!parsed) return parsed.error();
  auto name = parse_event_name(command, options.strict);
  if (!name) return name.error();

  ProbeSpec spec;
  spec.definition = command.text();
  spec.place = std::move(parsed->place);
  spec.is_return = is_return || parsed->is_return;
  spec.group = std::move(name->group);
  spec.has_automatic_name = name->event.empty();
  spec.event = name->event.empty() ? automatic_name(spec.place, spec.is_return) : std::move(name->event);
  if (spec.event == kNameOfSymbol && spec.place.symbol.empty())
    return with_help(command.blame(0, command.word(0).size() - 1, message::kBadEvent), "'*' is the name of a symbol");
  if (!spec.place.marker.empty()) {
    if (spec.is_return) return command.blame(1, 0, message::kMarkerReturn);
    return with_written(std::move(spec), command);
  }
  // $argN means the calling convention's registers, which hold the arguments at the function's first instruction. An offset in
  // the file may be that instruction: the user knows.
  const bool inside = !spec.place.symbol.empty() && spec.place.offset != 0;
  auto arguments = parse_arguments(command, {.strict = options.strict,
                                             .words_2009 = options.words_2009,
                                             .is_return = spec.is_return,
                                             .is_function_entry = !inside});
  if (!arguments) return arguments.error();
  spec.arguments = arguments.take();
  return spec;
}

std::vector<NumberedLine> split_definitions(std::string_view text) {
  std::vector<NumberedLine> lines;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t first = line.find_first_not_of(" \t\r\v\f");
    if (first == std::string_view::npos || line[first] == '#') continue;
    lines.push_back({number, std::string(line)});
  }
  return lines;
}

}  // namespace uprobe::spec
