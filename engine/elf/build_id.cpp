// SPDX-License-Identifier: MIT
#include <elf.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "engine/base/text.h"
#include "engine/elf/debug_files.h"

namespace uprobe::elf {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::size_t kMostHeaders = 128, kMostNoteBytes = 65536, kMostIdBytes = 32;

bool read_whole(const Fd& file, void* to, std::size_t bytes, std::uint64_t offset) {
  return read_at(file, to, bytes, offset) == static_cast<ssize_t>(bytes);
}

bool is_known_kind(const Elf64_Ehdr& head) {
  return std::memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_ident[EI_CLASS] == ELFCLASS64 &&
         head.e_ident[EI_DATA] == ELFDATA2LSB && head.e_phentsize == sizeof(Elf64_Phdr) && head.e_phnum <= kMostHeaders;
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// The parts of a note follow each other, each at a multiple of `alignment`.
std::string id_in(std::string_view notes, std::size_t alignment) {
  constexpr std::string_view kOwner = "GNU\0"sv;
  const auto up = [&](std::size_t size) { return (size + alignment - 1) / alignment * alignment; };
  Elf64_Nhdr note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    const std::size_t value = up(sizeof note + note.n_namesz), next = value + up(note.n_descsz);
    if (value > notes.size() || note.n_descsz > notes.size() - value) return {};
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(sizeof note, note.n_namesz) == kOwner)
      return hex_digits(bytes_of(notes.substr(value, std::min<std::size_t>(note.n_descsz, kMostIdBytes))));
    notes.remove_prefix(std::min(next, notes.size()));
  }
  return {};
}

}  // namespace

std::string build_id_in(const Fd& file) {
  Elf64_Ehdr head;
  if (!read_whole(file, &head, sizeof head, 0) || !is_known_kind(head)) return {};
  std::vector<Elf64_Phdr> segments(head.e_phnum);
  if (!read_whole(file, segments.data(), segments.size() * sizeof segments[0], head.e_phoff)) return {};
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMostNoteBytes) continue;
    std::string notes(segment.p_filesz, '\0');
    if (!read_whole(file, notes.data(), notes.size(), segment.p_offset)) continue;
    if (std::string id = id_in(notes, segment.p_align == 8 ? 8 : 4); !id.empty()) return id;
  }
  return {};
}

}  // namespace uprobe::elf
