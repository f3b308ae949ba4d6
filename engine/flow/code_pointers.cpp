// SPDX-License-Identifier: MIT
#include "engine/flow/code_pointers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "arch/abi/elf.h"

namespace uprobe::elf {
namespace {

using arch::RelocationKind;

// gABI "Relative Relocation Table"; glibc's elf.h has them since 2.36, musl's later.
constexpr std::int64_t kRelrSize = 35;
constexpr std::int64_t kRelr = 36;
constexpr unsigned kWordBits = 63;

class Gather {
 public:
  explicit Gather(const Image& image) : image_(image) {
    if (const auto address = image.dynamic(DT_SYMTAB)) symbols_ = image.bytes_at(*address);
    for (const Segment& segment : image.segments()) {
      if (!segment.executable) continue;
      low_ = std::min(low_, segment.address);
      high_ = std::max(high_, segment.address + segment.file_bytes);
    }
  }

  void add_rela(std::int64_t address_tag, std::int64_t size_tag) {
    const auto address = image_.dynamic(address_tag);
    const auto size = image_.dynamic(size_tag);
    if (address && size) add_entries(image_.bytes_at(*address), *size);
  }
  // Static programs have no PT_DYNAMIC; their IRELATIVE entries are in a section.
  // Tables do not overlap, so that all of them fit into the file.
  void add_sections() {
    std::uint64_t left = image_.bytes().size();
    for (const Section& section : image_.sections()) {
      const auto& header = section.header;
      if (header.sh_type != SHT_RELA || (header.sh_flags & SHF_ALLOC) == 0 || header.sh_size > left) continue;
      left -= header.sh_size;
      add_entries(image_.bytes().from(header.sh_offset), header.sh_size);
    }
  }
  void add_relr() {
    const auto address = image_.dynamic(kRelr);
    const auto size = image_.dynamic(kRelrSize);
    if (address && size) add_relr_entries(image_.bytes_at(*address), *size);
  }
  void add_words() {
    std::uint64_t left = 2 * image_.bytes().size();  // segments may show the same bytes, but not that often
    for (const Segment& segment : image_.segments()) {
      if (segment.file_bytes > left) return;
      left -= segment.file_bytes;
      const BytesView bytes = image_.bytes().slice(segment.offset, segment.file_bytes);
      add_words_of(bytes.span(), -segment.address & 7U);
    }
  }
  std::vector<std::uint64_t> take() { return std::move(found_); }

 private:
  // Nearly all words of a program are not such addresses: the first comparison rejects those.
  void add(std::uint64_t address) {
    if (address < low_ || address >= high_ || address == 0) return;
    if (image_.executable_at(address) != nullptr) found_.push_back(address);
  }
  void add_words_of(std::span<const std::uint8_t> bytes, std::uint64_t first) {
    for (std::uint64_t at = first; at + 8 <= bytes.size(); at += 8) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      add(word);
    }
  }
  void add_word_at(std::uint64_t place) { add(image_.bytes_at(place).read<std::uint64_t>(0).value_or(0)); }

  void add_entries(BytesView table, std::uint64_t size) {
    for (std::uint64_t at = 0; at + sizeof(Elf64_Rela) <= size && table.holds(at, sizeof(Elf64_Rela));
         at += sizeof(Elf64_Rela))
      add_entry(*table.read<Elf64_Rela>(at));
  }
  void add_entry(const Elf64_Rela& entry) {
    const auto addend = static_cast<std::uint64_t>(entry.r_addend);
    switch (arch::kind_of_relocation(ELF64_R_TYPE(entry.r_info))) {
      case RelocationKind::relative:
      case RelocationKind::irelative:
        return add(addend);
      case RelocationKind::slot:  // the second instruction of its PLT entry until the function is bound
        return add_word_at(entry.r_offset);
      case RelocationKind::symbol:
        return add_symbol(ELF64_R_SYM(entry.r_info), addend);
      default:
        return;
    }
  }
  void add_symbol(std::uint64_t index, std::uint64_t addend) {
    const auto symbol = symbols_.read<Elf64_Sym>(index * sizeof(Elf64_Sym));
    if (symbol && symbol->st_shndx != SHN_UNDEF) add(symbol->st_value + addend);
  }
  // An even entry is a place, an odd one a bitmap of the 63 words after the places so far.
  void add_relr_entries(BytesView table, std::uint64_t size) {
    std::uint64_t place = 0;
    for (std::uint64_t at = 0; at + 8 <= size && table.holds(at, 8); at += 8) {
      const auto entry = *table.read<std::uint64_t>(at);
      if ((entry & 1) == 0) {
        add_word_at(entry);
        place = entry + 8;
        continue;
      }
      for (unsigned bit = 0; bit < kWordBits; ++bit)
        if ((entry >> (bit + 1) & 1) != 0) add_word_at(place + 8 * bit);
      place += 8 * kWordBits;
    }
  }

  const Image& image_;
  BytesView symbols_;
  std::uint64_t low_ = UINT64_MAX, high_ = 0;  // around all code
  std::vector<std::uint64_t> found_;
};

}  // namespace

std::vector<std::uint64_t> code_pointers(const Image& image) {
  Gather gather(image);
  gather.add_rela(DT_RELA, DT_RELASZ);
  gather.add_rela(DT_JMPREL, DT_PLTRELSZ);
  gather.add_relr();
  if (!image.dynamic(DT_RELA)) gather.add_sections();
  if (!image.is_position_independent()) gather.add_words();
  return gather.take();
}

}  // namespace uprobe::elf
