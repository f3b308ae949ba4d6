// SPDX-License-Identifier: MIT
#include "engine/marker/listing.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>

#include "engine/marker/arguments.h"
#include "engine/marker/marks.h"
#include "engine/marker/notes.h"

namespace uprobe::marker {
namespace {

using Types = std::vector<std::optional<NumberType>>;

Types types_of(const std::string& arguments) {
  Types types;
  for (const NotedArgument& one : noted_arguments(arguments))
    types.push_back(one.problem.empty() ? std::optional(one.type) : std::nullopt);
  return types;
}

struct Listed {
  std::size_t places = 0;
  Types types = {};
  bool has_semaphore = false;

  void add(const Marker& marker) {
    Types here = types_of(marker.arguments);
    for (std::size_t i = 0; places != 0 && i < std::max(types.size(), here.size()); ++i) {
      const bool is_shared = i < types.size() && i < here.size() && types[i] && here[i];
      if (i >= here.size()) here.resize(i + 1);
      here[i] = is_shared ? common_type(*types[i], *here[i]) : std::nullopt;
    }
    types = std::move(here);
    has_semaphore = has_semaphore || marker.semaphore.has_value();
    ++places;
  }

  std::string text() const {
    std::string text = " # " + std::to_string(places) + (places == 1 ? " place" : " places");
    if (!types.empty()) text += ":";
    for (const auto& type : types) text += " " + (type ? name_of(*type) : "-");
    return has_semaphore ? text + ", with a semaphore" : text;
  }
};

// The marks of one name: places and semaphores by format.
struct ListedMark {
  std::map<std::string, std::size_t> places = {};
  bool has_semaphore = false;

  void add(const Marker& marker) {
    ++places[marker.format];
    has_semaphore = has_semaphore || marker.semaphore.has_value();
  }

  std::string text() const {
    std::string text = " #";
    for (const auto& [format, count] : places)
      text += (text.size() > 2 ? "; " : " ") + std::to_string(count) + (count == 1 ? " place" : " places") + ": \"" +
              format + "\"";
    return has_semaphore ? text + ", with a semaphore" : text;
  }
};

// By name, of those that match the glob; then what was refused.
template <class Kind>
std::vector<std::string> lines_of(const Notes& notes, const std::string& glob, const std::string& place) {
  std::map<std::string, Kind> named;
  for (const Marker& marker : notes.markers) {
    const std::string name = marker.provider + ":" + marker.name;
    if (::fnmatch(glob.c_str(), name.c_str(), 0) == 0) named[name].add(marker);
  }
  std::vector<std::string> lines;
  lines.reserve(named.size() + notes.problems.size());
  for (const auto& [name, listed] : named) lines.push_back(place + name + listed.text());
  for (const std::string& problem : notes.problems) lines.push_back("# " + problem);
  return lines;
}

}  // namespace

std::vector<std::string> list_markers(const std::string& path, const elf::ElfFile& file, const std::string& glob) {
  return lines_of<Listed>(read_notes(file), glob, "p " + path + ":sdt:");
}

std::vector<std::string> list_marks(const std::string& path, const elf::ElfFile& file, const std::string& glob) {
  return lines_of<ListedMark>(read_marks(file), glob, "p " + path + ":mark:");
}

}  // namespace uprobe::marker
