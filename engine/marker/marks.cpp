// SPDX-License-Identifier: MIT
#include "engine/marker/marks.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "engine/base/result.h"
#include "engine/elf/bytes_view.h"
#include "engine/marker/note_section.h"
#include "engine/spec/argument.h"

namespace uprobe::marker {
namespace {

using elf::BytesView;
using elf::Cursor;
using spec::Conversion;
using spec::Kind;

constexpr NoteKind kMarkKind{
    .section = ".note.uprobe", .owner = {"uprobe\0", 7}, .type = 1, .name = "version 1 of uprobe"};
constexpr std::uint64_t kDescriptionBytes = 24;

// Joins the notes of a place.
class MarkReader {
 public:
  explicit MarkReader(const elf::ElfFile& file)
      : file_(file), base_(section_address(file, kBaseSection)), plain_(read_notes(file)) {
    for (std::size_t i = 0; i < plain_.markers.size(); ++i) by_address_.emplace(plain_.markers[i].address, i);
  }

  Notes run() {
    read_note_section(
        file_, kMarkKind, [this](BytesView description) { return add(description); }, marks_.problems);
    if (marks_.markers.empty() && marks_.problems.empty()) return {};
    marks_.problems.insert(marks_.problems.end(), plain_.problems.begin(), plain_.problems.end());
    return std::move(marks_);
  }

 private:
  static Error bad(std::string why) { return Error{.code = Code::damaged, .text = std::move(why)}; }

  Status add(BytesView description) {
    Cursor cursor(description);
    const auto place = cursor.take<std::uint64_t>(), base = cursor.take<std::uint64_t>();
    const auto format = cursor.take<std::uint64_t>();
    if (!cursor.good() || description.size() != kDescriptionBytes) return bad("it does not have 24 bytes");
    const std::uint64_t moved = base_ && base != 0 ? *base_ - base : 0;
    const auto found = by_address_.find(place + moved);
    if (found == by_address_.end()) return bad("no note of stapsdt is about its place");
    Marker marker = plain_.markers[found->second];
    RETURN_IF_ERROR(find_format(format + moved, marker));
    by_address_.erase(found);
    marks_.markers.push_back(std::move(marker));
    return ok();
  }

  Status find_format(std::uint64_t address, Marker& marker) const {
    const auto offset = file_.offset_of_address(address);
    const auto text = offset ? BytesView(file_.bytes()).text(*offset, kLongestFormat) : std::nullopt;
    if (!text) return bad("its format is not in the file, or too long");
    const auto format = spec::read_print_format(*text);
    if (!format) return bad("of its format " + format.error().text);
    if (format->conversions.size() != count_of(marker))
      return bad("its format has " + std::to_string(format->conversions.size()) + " conversions for " +
                 std::to_string(count_of(marker)) + " arguments");
    marker.format = *text;
    return ok();
  }

  static std::size_t count_of(const Marker& marker) { return noted_arguments(marker.arguments).size(); }

  const elf::ElfFile& file_;
  const std::optional<std::uint64_t> base_;  // .stapsdt.base as it is in the file
  const Notes plain_;
  std::multimap<std::uint64_t, std::size_t> by_address_;  // of those that no mark has taken
  Notes marks_;
};

// Bits of the widest of the argument's places, as far as the conversion takes them.
std::optional<unsigned> integer_bits(const Conversion& conversion, std::size_t number,
                                     const std::vector<std::vector<NotedArgument>>& places) {
  std::uint8_t widest = 0;
  for (const auto& noted : places) {
    if (number > noted.size() || noted[number - 1].type.kind == Kind::floating) return {};
    widest = std::max(widest, noted[number - 1].type.bytes);
  }
  return 8u * std::min(widest, conversion.bytes);
}

// Empty: the type that the notes give.
std::string type_of(const Conversion& conversion, std::size_t number,
                    const std::vector<std::vector<NotedArgument>>& places) {
  if (conversion.letter == 's') return ":string";
  const auto bits = integer_bits(conversion, number, places);
  if (!bits) return {};
  switch (conversion.letter) {
    case 'd':
      return ":s" + std::to_string(*bits);
    case 'u':
    case 'o':
      return ":u" + std::to_string(*bits);
    case 'x':
    case 'X':
    case 'p':
      return ":x" + std::to_string(*bits);
    case 'c':
      return ":char";
    default:
      return {};
  }
}

}  // namespace

Notes read_marks(const elf::ElfFile& file) { return MarkReader(file).run(); }

std::vector<spec::WrittenArgument> written_by_format(const std::string& format,
                                                     const std::vector<std::vector<NotedArgument>>& places) {
  const auto read = spec::read_print_format(format);
  std::vector<spec::WrittenArgument> written;
  if (!read) return written;
  std::set<std::string> names;
  written.reserve(read->conversions.size());
  for (const Conversion& conversion : read->conversions) {
    const std::string number = std::to_string(written.size() + 1);
    std::string name(spec::name_before(conversion.before));
    if (!spec::can_be_argument(name) || name == "if" || names.count(name) != 0) name = "arg" + number;
    while (!names.insert(name).second) name += '_';
    written.push_back({.text = name + "=$arg" + number + type_of(conversion, written.size() + 1, places)});
  }
  return written;
}

}  // namespace uprobe::marker
