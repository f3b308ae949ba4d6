// SPDX-License-Identifier: MIT
// "f@file.c", perf's and SystemTap's: of the functions of a name those of one source.
#include <algorithm>
#include <array>
#include <set>

#include "engine/resolve/locations.h"

namespace uprobe {

namespace {

using spec::ProbeSpec;

constexpr std::size_t kMostFunctions = 64;  // whose lines are looked through

bool is_source(std::string_view name) {
  constexpr std::array<std::string_view, 8> kEnds = {".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".rs", ".go"};
  return std::ranges::any_of(kEnds, [name](std::string_view end) { return name.ends_with(end); });
}

bool ends_with_path(std::string_view path, std::string_view end) {
  return path.ends_with(end) && (path.size() == end.size() || path[path.size() - end.size() - 1] == '/');
}

}  // namespace

std::string take_source(std::string& symbol) {
  const std::size_t at = symbol.rfind('@');
  if (at == std::string::npos || at == 0 || !is_source(std::string_view(symbol).substr(at + 1))) return {};
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
    const bool is_of_source =
        std::ranges::any_of(*lines, [&](const dwarf::CodeLine& line) { return ends_with_path(line.file, source_); });
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
