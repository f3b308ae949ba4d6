// SPDX-License-Identifier: MIT
// The frame of an ELF file: its headers, checked, and the map between file offsets and link-time addresses. Only queries for a
// section depend on section headers, which a program may lack or falsify.
#pragma once

#include <gelf.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/elf/bytes_view.h"
#include "engine/elf/elf_file.h"
#include "engine/elf/handle.h"

namespace uprobe::elf {

struct Section {
  std::uint64_t index = 0;
  std::string_view name;  // empty if longer than any known name
  GElf_Shdr header{};
};

// Views the file's bytes, which must outlive it. Const functions may be called from several threads, except those that return
// libelf's data.
class Image {
 public:
  // Code::damaged or Code::refused; `text` reads on from the file's name ("is a 32-bit program").
  static Result<Image> parse(BytesView bytes);
  // A file of debug information: its sections and its build id. It has no segments, and so no addresses.
  static Result<Image> parse_debug(BytesView bytes);

  BytesView bytes() const { return bytes_; }
  const std::vector<Segment>& segments() const { return segments_; }  // by address, disjoint, inside the file
  std::uint64_t entry() const { return header_.e_entry; }
  bool is_position_independent() const { return header_.e_type == ET_DYN; }
  const std::string& interpreter() const { return interpreter_; }
  std::span<const std::uint8_t> build_id() const { return build_id_; }

  std::optional<std::uint64_t> address_of_offset(std::uint64_t offset) const;
  std::optional<std::uint64_t> offset_of_address(std::uint64_t address) const;
  bool is_executable_offset(std::uint64_t offset) const;
  // The executable segment whose file bytes hold the address; nullptr if none does.
  const Segment* executable_at(std::uint64_t address) const;

  // The file's bytes from a link-time address to the end of its segment.
  BytesView bytes_at(std::uint64_t address) const;
  // The value of the first entry of PT_DYNAMIC with this tag.
  std::optional<std::uint64_t> dynamic(std::int64_t tag) const;
  // The values of all entries with this tag.
  std::vector<std::uint64_t> all_dynamic(std::int64_t tag) const;
  // Link-time address of .eh_frame_hdr (PT_GNU_EH_FRAME).
  std::optional<std::uint64_t> eh_frame_header() const { return eh_frame_header_; }

  std::span<const Section> sections() const { return sections_; }
  // The first section of this type, and of this name unless that is empty; nullptr if there is none.
  const Section* find_section(std::uint32_t type, std::string_view name = {}) const;

  // The bytes of the first section of this name that has any.
  BytesView section_bytes(std::string_view name) const;

  // libelf's data, for one thread at a time: a section's, and the table at a link-time address, which ends after `most`
  // bytes or with its segment. nullptr if it is not in the file.
  Elf_Data* section_data(std::uint64_t index) const { return handle_.section_data(index); }
  Elf_Data* table_at(std::uint64_t address, std::uint64_t most, Elf_Type type) const;

 private:
  static Result<Image> begin(BytesView bytes);
  Status read_program_headers();
  Status add_segment(const GElf_Phdr& program_header);
  Status read_interpreter();
  Elf_Data* notes_of(std::uint64_t offset, std::uint64_t size, std::uint64_t alignment);
  void read_notes(std::uint64_t offset, std::uint64_t size, std::uint64_t alignment);
  void read_dynamic();
  void read_sections();
  Status check_segments();
  const Segment* segment_at(std::uint64_t address) const;

  BytesView bytes_;
  Handle handle_;
  Elf64_Ehdr header_{};
  std::vector<Segment> segments_;
  std::optional<GElf_Phdr> interpreter_header_;
  std::string interpreter_;
  std::span<const std::uint8_t> build_id_;
  unsigned note_tables_ = 0;
  std::optional<std::uint64_t> dynamic_address_;  // link-time address of PT_DYNAMIC
  std::vector<GElf_Dyn> dynamic_;                 // up to DT_NULL
  std::optional<std::uint64_t> eh_frame_header_;
  std::vector<Section> sections_;
};

}  // namespace uprobe::elf
