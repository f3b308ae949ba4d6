// SPDX-License-Identifier: MIT
#include "engine/marker/notes.h"

#include <algorithm>
#include <string_view>

#include "engine/base/result.h"
#include "engine/base/text.h"
#include "engine/elf/bytes_view.h"
#include "engine/marker/note_section.h"

namespace uprobe::marker {
namespace {

using elf::BytesView;
using elf::Cursor;

constexpr NoteKind kKind{
    .section = ".note.stapsdt", .owner = {"stapsdt\0", 8}, .type = 3, .name = "version 3 of stapsdt"};

// Letters, digits and a few signs: names are words of definitions and of what is printed.
bool is_name(std::string_view text) {
  const auto is_good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), is_good);
}

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Where in the file a word of the program's data is, which lies wholly in the bytes of a writable segment.
std::optional<std::uint64_t> offset_of_data(const elf::ElfFile& file, std::uint64_t address) {
  for (const elf::Segment& s : file.segments())
    if (s.writable && address >= s.address && address - s.address + 2 <= s.file_bytes &&
        address - s.address < s.file_bytes)
      return s.offset + (address - s.address);
  return {};
}

class Reader {
 public:
  explicit Reader(const elf::ElfFile& file) : file_(file), base_(section_address(file, kBaseSection)) {}

  Notes run() {
    read_note_section(
        file_, kKind, [this](BytesView rest) { return add(rest); }, notes_.problems);
    return std::move(notes_);
  }

 private:
  static Status bad(const char* why) { return Error{.code = Code::damaged, .text = why}; }

  Status add(BytesView rest) {
    Cursor cursor(rest);
    const auto place = cursor.take<std::uint64_t>(), base = cursor.take<std::uint64_t>();
    const auto semaphore = cursor.take<std::uint64_t>();
    const std::string_view provider = cursor.text(kLongestName), name = cursor.text(kLongestName);
    const std::string_view arguments = cursor.text(kLongestArguments);
    if (!cursor.good()) return bad("its texts are too long, or do not end");
    if (!is_name(provider) || !is_name(name)) return bad("its name has characters that no name has");
    if (!is_plain(arguments)) return bad("its arguments have characters that no operand has");
    Marker marker{.provider = std::string(provider), .name = std::string(name), .arguments = std::string(arguments)};
    const std::uint64_t moved = base_ && base != 0 ? *base_ - base : 0;
    RETURN_IF_ERROR(find_place(place + moved, marker));
    if (semaphore != 0) RETURN_IF_ERROR(find_semaphore(semaphore + moved, marker));
    notes_.markers.push_back(std::move(marker));
    return ok();
  }

  Status find_place(std::uint64_t address, Marker& marker) const {
    const auto offset = file_.offset_of_address(address);
    if (!offset || !file_.is_executable_offset(*offset)) return bad("its place is not in code of the file");
    marker.address = address;
    marker.offset = *offset;
    return ok();
  }

  Status find_semaphore(std::uint64_t address, Marker& marker) const {
    marker.semaphore = offset_of_data(file_, address);
    if (!marker.semaphore) return bad("its semaphore is not in writable data of the file");
    return *marker.semaphore % 2 == 0 ? ok() : bad("its semaphore is at an odd address");
  }

  const elf::ElfFile& file_;
  const std::optional<std::uint64_t> base_;  // .stapsdt.base as it is in the file
  Notes notes_;
};

}  // namespace

Notes read_notes(const elf::ElfFile& file) { return Reader(file).run(); }

}  // namespace uprobe::marker
