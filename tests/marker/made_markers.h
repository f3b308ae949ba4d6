// SPDX-License-Identifier: MIT
// A small program with notes of markers, made in memory: code at 0x401000, data at 0x602000.
#pragma once

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace uprobe::marker {

class MadeMarkers {
 public:
  static constexpr std::uint64_t kText = 0x400000, kCode = 0x401000, kData = 0x602000, kBase = 0x401800;
  static constexpr std::uint64_t kDataOffset = 0x2000, kEnd = 0x3000, kFormatOffset = 0x1900;

  // The fields of a note as the assembler writes them.
  struct Note {
    std::uint64_t place = kCode, base = kBase, semaphore = 0;
    std::string provider = "group", name = "name", arguments = {};
    std::uint32_t type = 3;
    std::string_view owner{"stapsdt\0", 8};
  };

  void add(const Note& note) {
    std::string rest(24, '\0');
    const std::uint64_t words[] = {note.place, note.base, note.semaphore};
    std::memcpy(rest.data(), words, sizeof words);
    rest += note.provider + '\0' + note.name + '\0' + note.arguments + '\0';
    add_raw(note.owner, rest, note.type, static_cast<std::uint32_t>(rest.size()));
  }
  void add_raw(std::string_view owner, const std::string& rest, std::uint32_t type, std::uint32_t bytes) {
    const std::uint32_t head[] = {static_cast<std::uint32_t>(owner.size()), bytes, type};
    notes_.append(reinterpret_cast<const char*>(head), sizeof head);
    notes_ += owner;
    notes_.resize((notes_.size() + 3) / 4 * 4);
    notes_ += rest;
    notes_.resize((notes_.size() + 3) / 4 * 4);
  }
  void set_notes(std::string notes) { notes_ = std::move(notes); }

  // The note of the mark of a place: its format, which is put among the constants.
  void add_mark(const std::string& format, std::uint64_t place = kCode, std::uint32_t type = 1,
                std::string_view owner = {"uprobe\0", 7}) {
    const std::uint64_t words[] = {place, kBase, kText + kFormatOffset + formats_.size()};
    formats_ += format + '\0';
    add_mark_note(owner, std::string(reinterpret_cast<const char*>(words), sizeof words), type);
  }
  void add_mark_note(std::string_view owner, const std::string& rest, std::uint32_t type) {
    std::swap(notes_, marks_);
    add_raw(owner, rest, type, static_cast<std::uint32_t>(rest.size()));
    std::swap(notes_, marks_);
  }
  void set_marks(std::string marks) { marks_ = std::move(marks); }

  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all(kEnd);
    const std::string names{"\0.note.stapsdt\0.stapsdt.base\0.shstrtab\0.note.uprobe\0", 52};
    const std::uint64_t notes_at = kEnd, marks_at = notes_at + notes_.size(), names_at = marks_at + marks_.size(),
                        sections_at = (names_at + names.size() + 7) / 8 * 8;
    all.resize(sections_at + kSections * sizeof(Elf64_Shdr));
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB,
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_EXEC, header.e_machine = EM_X86_64, header.e_version = EV_CURRENT;
    header.e_entry = kCode, header.e_phoff = sizeof header, header.e_ehsize = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr), header.e_phnum = 2;
    header.e_shoff = sections_at, header.e_shentsize = sizeof(Elf64_Shdr), header.e_shnum = kSections,
    header.e_shstrndx = 3;
    std::memcpy(all.data(), &header, sizeof header);
    const Elf64_Phdr segments[] = {
        {PT_LOAD, PF_R | PF_X, 0, kText, kText, kDataOffset, kDataOffset, 0x1000},
        {PT_LOAD, PF_R | PF_W, kDataOffset, kData, kData, kEnd - kDataOffset, 0x2000, 0x1000}};
    std::memcpy(all.data() + sizeof header, segments, sizeof segments);
    std::memcpy(all.data() + notes_at, notes_.data(), notes_.size());
    std::memcpy(all.data() + marks_at, marks_.data(), marks_.size());
    std::memcpy(all.data() + kFormatOffset, formats_.data(), std::min<std::size_t>(formats_.size(), 0x600));
    std::memcpy(all.data() + names_at, names.data(), names.size());
    Elf64_Shdr sections[kSections] = {};
    sections[1].sh_name = 1, sections[1].sh_type = SHT_NOTE, sections[1].sh_offset = notes_at;
    sections[1].sh_size = notes_.size(), sections[1].sh_addralign = 4;
    sections[2].sh_name = 15, sections[2].sh_type = SHT_PROGBITS, sections[2].sh_flags = SHF_ALLOC;
    sections[2].sh_addr = kBase, sections[2].sh_offset = kBase - kText, sections[2].sh_size = 1,
    sections[2].sh_addralign = 1;
    sections[3].sh_name = 29, sections[3].sh_type = SHT_STRTAB, sections[3].sh_offset = names_at;
    sections[3].sh_size = names.size(), sections[3].sh_addralign = 1;
    sections[4].sh_name = 39, sections[4].sh_type = SHT_NOTE, sections[4].sh_offset = marks_at;
    sections[4].sh_size = marks_.size(), sections[4].sh_addralign = 4;
    std::memcpy(all.data() + sections_at, sections, sizeof sections);
    return all;
  }

 private:
  static constexpr std::uint16_t kSections = 5;

  std::string notes_, marks_, formats_;
};

}  // namespace uprobe::marker
