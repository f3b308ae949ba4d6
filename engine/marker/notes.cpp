// SPDX-License-Identifier: MIT
#include "engine/marker/notes.h"

#include <algorithm>
#include <string_view>

#include "engine/base/result.h"
#include "engine/base/text.h"
#include "engine/elf/bytes_view.h"

namespace uprobe::marker {
namespace {

using elf::BytesView;
using elf::Cursor;

constexpr std::string_view kSection = ".note.stapsdt", kBaseSection = ".stapsdt.base";
constexpr std::string_view kOwner{"stapsdt\0", 8};
constexpr std::uint32_t kType = 3;
constexpr std::uint64_t kAlignment = 4;
constexpr std::size_t kMostProblems = 100;

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
  explicit Reader(const elf::ElfFile& file) : file_(file), base_(address_of_section(kBaseSection)) {}

  Notes run() {
    const auto bytes = file_.section(kSection);
    const BytesView view(bytes);
    std::uint64_t at = 0;
    while (at < view.size()) {
      const std::uint64_t next = read_note(view, at);
      if (next <= at) break;
      at = next;
    }
    return std::move(notes_);
  }

 private:
  std::optional<std::uint64_t> address_of_section(std::string_view name) const {
    const auto bytes = file_.section(name);
    if (bytes.empty()) return {};
    return file_.address_of_offset(static_cast<std::uint64_t>(bytes.data() - file_.bytes().data()));
  }

  void tell(std::uint64_t at, const std::string& why) {
    if (notes_.problems.size() < kMostProblems) notes_.problems.push_back("note at " + hex(at) + ": " + why);
  }

  // Returns where the next one begins; 0: no further note can be found.
  std::uint64_t read_note(BytesView view, std::uint64_t at) {
    Cursor cursor(view, at);
    const auto owner_bytes = cursor.take<std::uint32_t>(), bytes = cursor.take<std::uint32_t>();
    const auto type = cursor.take<std::uint32_t>();
    const BytesView owner = cursor.slice((owner_bytes + kAlignment - 1) / kAlignment * kAlignment);
    const BytesView rest = cursor.slice(bytes);
    if (!cursor.good()) return tell(at, "it does not end in its section; the notes after it are not read"), 0;
    if (notes_.markers.size() >= kMostMarkers)
      return tell(at, "there are too many; the notes after it are not read"), 0;
    const bool is_marker = owner_bytes == kOwner.size() && is_owner(owner) && type == kType;
    const Status added = is_marker ? add(rest) : bad("it is of another kind than version 3 of stapsdt");
    if (!added) tell(at, added.error().text);
    return (cursor.at() + kAlignment - 1) / kAlignment * kAlignment;
  }

  static bool is_owner(BytesView owner) {
    const auto name = owner.slice(0, kOwner.size()).span();
    return std::equal(name.begin(), name.end(), kOwner.begin(), kOwner.end());
  }

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
