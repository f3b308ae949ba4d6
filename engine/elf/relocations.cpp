#include "engine/elf/relocations.h"

#include <elf.h>

#include <cstring>

namespace uprobe::elf {
namespace {

template <class T>
bool read_at(std::span<const std::uint8_t> bytes, std::uint64_t offset, T& out) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof out) return false;
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return true;
}

void append_table(std::span<const std::uint8_t> bytes, std::uint64_t offset, std::uint64_t size,
                  std::vector<Relocation>& to) {
  for (std::uint64_t at = 0; size - at >= sizeof(Elf64_Rela) && at < size; at += sizeof(Elf64_Rela)) {
    Elf64_Rela rela;
    if (offset > bytes.size() || !read_at(bytes, offset + at, rela)) return;
    const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(rela.r_info));
    if (type == kRelative || type == kIrelative)
      to.push_back({rela.r_offset, type, static_cast<std::uint64_t>(rela.r_addend)});
  }
}

std::vector<Relocation> from_sections(std::span<const std::uint8_t> bytes, const Elf64_Ehdr& head) {
  std::vector<Relocation> found;
  if (head.e_shoff == 0 || head.e_shentsize != sizeof(Elf64_Shdr)) return found;
  for (std::uint64_t i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!read_at(bytes, head.e_shoff + i * sizeof section, section)) break;
    const bool loaded = (section.sh_flags & SHF_ALLOC) != 0;
    if (section.sh_type == SHT_RELA && loaded) append_table(bytes, section.sh_offset, section.sh_size, found);
  }
  return found;
}

struct Table {
  std::uint64_t address = 0, size = 0;
};

std::vector<Relocation> from_dynamic(const ElfFile& file, const Elf64_Ehdr& head) {
  const auto bytes = file.bytes();
  Table rela, plt;
  for (std::uint64_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(bytes, head.e_phoff + i * sizeof segment, segment)) break;
    if (segment.p_type != PT_DYNAMIC) continue;
    Elf64_Dyn entry;
    for (std::uint64_t at = 0; at + sizeof entry <= segment.p_filesz; at += sizeof entry) {
      if (!read_at(bytes, segment.p_offset + at, entry) || entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_RELA) rela.address = entry.d_un.d_ptr;
      if (entry.d_tag == DT_RELASZ) rela.size = entry.d_un.d_val;
      if (entry.d_tag == DT_JMPREL) plt.address = entry.d_un.d_ptr;
      if (entry.d_tag == DT_PLTRELSZ) plt.size = entry.d_un.d_val;
    }
  }
  std::vector<Relocation> found;
  for (const Table& table : {rela, plt})
    if (const auto offset = file.offset_of_address(table.address); offset && table.size != 0)
      append_table(bytes, *offset, table.size, found);
  return found;
}

}  // namespace

std::vector<Relocation> relocations_of(const ElfFile& file) {
  Elf64_Ehdr head;
  if (!read_at(file.bytes(), 0, head)) return {};
  auto found = from_sections(file.bytes(), head);
  return found.empty() ? from_dynamic(file, head) : found;
}

}  // namespace uprobe::elf
