// SPDX-License-Identifier: MIT
// A minimal ELF file made in memory: one executable segment that is the whole file, and the data that a test adds.
#pragma once

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace uprobe::elf {

class MadeElf {
 public:
  static constexpr std::uint64_t kBase = 0x400000;  // address of the file's first byte
  static constexpr std::uint64_t kSize = 0x2000;
  static constexpr std::uint64_t kCode = 0x1000;  // offset for a test's code

  MadeElf() : bytes_(kSize) {
    std::memcpy(header_.e_ident, ELFMAG, SELFMAG);
    header_.e_ident[EI_CLASS] = ELFCLASS64;
    header_.e_ident[EI_DATA] = ELFDATA2LSB;
    header_.e_ident[EI_VERSION] = EV_CURRENT;
    header_.e_type = ET_EXEC;
    header_.e_machine = EM_X86_64;
    header_.e_version = EV_CURRENT;
    header_.e_entry = kBase + kCode;
    header_.e_phoff = sizeof(Elf64_Ehdr);
    header_.e_ehsize = sizeof(Elf64_Ehdr);
    header_.e_phentsize = sizeof(Elf64_Phdr);
    add(Elf64_Phdr{.p_type = PT_LOAD,
                   .p_flags = PF_R | PF_X,
                   .p_offset = 0,
                   .p_vaddr = kBase,
                   .p_paddr = kBase,
                   .p_filesz = kSize,
                   .p_memsz = kSize,
                   .p_align = 0x1000});
  }

  Elf64_Ehdr& header() { return header_; }
  Elf64_Phdr& segment(std::size_t index = 0) { return program_headers_[index]; }
  void add(const Elf64_Phdr& entry) { program_headers_.push_back(entry); }
  // A program header for a part of the file.
  void add_part(std::uint32_t type, std::uint64_t offset, std::uint64_t size) {
    add(Elf64_Phdr{.p_type = type,
                   .p_flags = PF_R,
                   .p_offset = offset,
                   .p_vaddr = kBase + offset,
                   .p_paddr = kBase + offset,
                   .p_filesz = size,
                   .p_memsz = size,
                   .p_align = 4});
  }

  template <class T>
  void put(std::uint64_t offset, const T& value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }
  void put_bytes(std::uint64_t offset, const std::vector<std::uint8_t>& bytes) {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  std::vector<std::uint8_t> bytes() {
    header_.e_phnum = static_cast<std::uint16_t>(program_headers_.size());
    std::memcpy(bytes_.data(), &header_, sizeof header_);
    std::memcpy(bytes_.data() + sizeof header_, program_headers_.data(), program_headers_.size() * sizeof(Elf64_Phdr));
    return bytes_;
  }

 private:
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> program_headers_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace uprobe::elf
