// SPDX-License-Identifier: MIT
#include "engine/marker/note_section.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/elf/debug_files.h"
#include "engine/elf/debug_image.h"

namespace uprobe::marker {
namespace {

using elf::BytesView;
using elf::Cursor;

constexpr std::uint64_t kAlignment = 4;
constexpr std::size_t kMostProblems = 100;
constexpr std::uint64_t kMostOfDebugFile = std::uint64_t{64} << 20;  // bytes of notes

std::uint64_t aligned(std::uint64_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

bool is_owner(BytesView bytes, std::string_view owner) {
  const auto name = bytes.slice(0, owner.size()).span();
  return std::equal(name.begin(), name.end(), owner.begin(), owner.end());
}

class SectionReader {
 public:
  SectionReader(const NoteKind& kind, const TakeNote& take, std::vector<std::string>& problems)
      : kind_(kind), take_(take), problems_(problems) {}

  // Returns where the next one begins; 0: no further note can be found.
  std::uint64_t read_note(BytesView view, std::uint64_t at) {
    Cursor cursor(view, at);
    const auto owner_bytes = cursor.take<std::uint32_t>(), bytes = cursor.take<std::uint32_t>();
    const auto type = cursor.take<std::uint32_t>();
    const BytesView owner = cursor.slice(aligned(owner_bytes));
    const BytesView description = cursor.slice(bytes);
    if (!cursor.good()) return tell(at, "it does not end in its section; the notes after it are not read"), 0;
    if (count_ >= kMostNotes) return tell(at, "there are too many; the notes after it are not read"), 0;
    const bool is_kind = owner_bytes == kind_.owner.size() && is_owner(owner, kind_.owner) && type == kind_.type;
    const Status taken = is_kind ? take_(description) : of_another_kind();
    if (taken)
      ++count_;
    else
      tell(at, taken.error().text);
    return aligned(cursor.at());
  }

 private:
  void tell(std::uint64_t at, const std::string& why) {
    if (problems_.size() < kMostProblems) problems_.push_back("note at " + hex(at) + ": " + why);
  }

  Error of_another_kind() const {
    return Error{.code = Code::damaged, .text = std::string("it is of another kind than ") + kind_.name};
  }

  const NoteKind& kind_;
  const TakeNote& take_;
  std::vector<std::string>& problems_;
  std::size_t count_ = 0;  // of those that were taken
};

void read_all(BytesView view, const NoteKind& kind, const TakeNote& take, std::vector<std::string>& problems) {
  SectionReader reader(kind, take, problems);
  for (std::uint64_t at = 0; at < view.size();) {
    const std::uint64_t next = reader.read_note(view, at);
    if (next <= at) break;
    at = next;
  }
}

}  // namespace

void read_note_section(const elf::ElfFile& file, const NoteKind& kind, const TakeNote& take,
                       std::vector<std::string>& problems) {
  if (const BytesView own(file.section(kind.section)); own.size() != 0) return read_all(own, kind, take, problems);
  if (file.identity().inode == 0) return;  // bytes in memory have no debug file
  const auto search = elf::find_debug_file(file);
  if (!search.found) return;
  const auto image = elf::DebugImage::read_notes(search.found->file, kMostOfDebugFile, search.found->path);
  if (image) return read_all(image->image().section_bytes(kind.section), kind, take, problems);
  problems.push_back(search.found->path + " " + image.error().text);
}

std::optional<std::uint64_t> section_address(const elf::ElfFile& file, std::string_view name) {
  const auto bytes = file.section(name);
  if (bytes.empty()) return {};
  return file.address_of_offset(static_cast<std::uint64_t>(bytes.data() - file.bytes().data()));
}

}  // namespace uprobe::marker
