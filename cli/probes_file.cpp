// SPDX-License-Identifier: MIT
// Reads definitions. See probes_file.h.
#include "cli/probes_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/spec/parse.h"

namespace uprobe::cli {

namespace {

constexpr std::size_t kLargestFile = 64u << 20;

Result<std::string> read_descriptor(int fd) {
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("reading failed", errno);
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    if (text.size() > kLargestFile) return Error{.code = Code::limit, .text = "larger than 64 MiB"};
  }
}

// An empty file is an empty write.
void add_lines(Definitions& into, std::string_view text, const std::string& name, const std::string& object) {
  if (is_all_blank(text)) {
    into.list.push_back({"", object});
    into.places.push_back(name);
    return;
  }
  for (spec::NumberedLine& line : spec::split_definitions(text)) {
    into.list.push_back({.text = std::move(line.text), .default_object = object});
    into.places.push_back(name + ":" + std::to_string(line.number));
  }
}

std::string name_of(const ProbeSource& source) {
  if (source.kind == ProbeSource::Kind::definition) return source.is_function ? "-F" : "-p";
  return source.text == "-" ? "standard input" : source.text;
}

Result<std::string> text_of(const ProbeSource& source, int standard_input) {
  if (source.kind == ProbeSource::Kind::definition) return source.text;
  Result<std::string> text =
      source.text == "-" ? read_descriptor(standard_input) : read_file(source.text, kLargestFile);
  if (text) return text;
  Error error = text.error();
  error.where = name_of(source);
  return error;
}

}  // namespace

Result<Definitions> gather_writes(const std::vector<ProbeSource>& sources, int standard_input) {
  Definitions result;
  for (const ProbeSource& source : sources) {
    Result<std::string> text = text_of(source, standard_input);
    if (!text) return text.error();
    result.list.push_back({text.take(), source.default_object, source.filter, source.triggers, source.is_disabled});
    result.places.push_back(name_of(source));
  }
  return result;
}

void add_stacks(Definitions& definitions) {
  const auto is_stack = [](const std::string& trigger) { return trigger.starts_with("stacktrace"); };
  for (Definition& one : definitions.list)
    if (std::none_of(one.triggers.begin(), one.triggers.end(), is_stack)) one.triggers.emplace_back("stacktrace");
}

Result<Definitions> gather_definitions(const std::vector<ProbeSource>& sources, int standard_input) {
  Definitions result;
  for (const ProbeSource& source : sources) {
    if (source.kind == ProbeSource::Kind::definition) {
      result.list.push_back({source.text, source.default_object, source.filter, source.triggers, source.is_disabled});
      result.places.push_back(name_of(source));
      continue;
    }
    const Result<std::string> text = text_of(source, standard_input);
    if (!text) return text.error();
    add_lines(result, *text, name_of(source), source.default_object);
  }
  const auto is_empty = [](const Definition& definition) { return is_all_blank(definition.text); };
  if (!std::all_of(result.list.begin(), result.list.end(), is_empty)) return result;
  return Error{
      .code = Code::usage, .text = "contains no definition", .where = sources.empty() ? "-i" : sources.front().text};
}

}  // namespace uprobe::cli
