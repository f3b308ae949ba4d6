// SPDX-License-Identifier: MIT
// Reads relocations through libelf.
#include "engine/elf/relocations.h"

#include <gelf.h>

#include <algorithm>
#include <set>
#include <utility>

#include "engine/elf/image.h"

namespace uprobe::elf {
namespace {

enum class Wanted { choices, code, symbols, threads };

class Gather {
 public:
  Gather(const Image& image, Wanted wanted) : image_(image), wanted_(wanted) {
    if (const auto symbols = image.dynamic(DT_SYMTAB)) symbols_ = image.bytes_at(*symbols);
  }

  // The tables of the section headers, or without those the tables of PT_DYNAMIC.
  void add_all() {
    add_sections();
    if (!found_.empty() || !words_.empty()) return;
    add_dynamic(DT_RELA, DT_RELASZ);
    add_dynamic(DT_JMPREL, DT_PLTRELSZ);
  }
  std::vector<Relocation> take() { return std::move(found_); }
  std::vector<ThreadWord> take_thread_words() {
    std::erase_if(words_, [&](const ThreadWord& word) {
      return word.is_by_name && !word.is_distance && !places_.contains(word.place + sizeof(std::uint64_t));
    });
    return std::move(words_);
  }

 private:
  // Tables do not overlap, so all together hold no more entries than fit into the file. A file with many sections of
  // the same bytes ends there; libelf may copy a table for a request, so each section counts, even if it is not a
  // table.
  void add_sections() {
    std::uint64_t entries_left = image_.bytes().size() / sizeof(Elf64_Rela);
    for (const Section& section : image_.sections()) {
      const bool loaded = (section.header.sh_flags & SHF_ALLOC) != 0;
      const std::uint64_t count = section.header.sh_size / sizeof(Elf64_Rela);
      if (section.header.sh_type != SHT_RELA || !loaded || count == 0 || count > entries_left) continue;
      entries_left -= count;
      add(image_.section_data(section.index));
    }
  }
  void add_dynamic(std::int64_t address_tag, std::int64_t size_tag) {
    const auto address = image_.dynamic(address_tag);
    const auto size = image_.dynamic(size_tag);
    if (address && size) add(image_.table_at(*address, *size, ELF_T_RELA));
  }
  void add(Elf_Data* table) {
    for (std::uint64_t i = 0;; ++i) {
      const auto entry = entry_of(gelf_getrela, table, i);
      if (!entry) return;
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(entry->r_info));
      if (wanted_ == Wanted::symbols) {
        if (type == arch::kSymbolAddress) add_symbol(*entry);
        continue;
      }
      if (wanted_ == Wanted::threads) {
        if (type == arch::kThreadModule || type == arch::kThreadDistance) add_thread_word(*entry, type);
        if (type == arch::kThreadPlace) places_.insert(entry->r_offset);
        continue;
      }
      const bool wanted = wanted_ == Wanted::code ? image_.executable_at(entry->r_offset) != nullptr
                                                  : type == kRelative || type == kIrelative;
      if (wanted) found_.push_back({entry->r_offset, type, static_cast<std::uint64_t>(entry->r_addend)});
    }
  }

  void add_symbol(const GElf_Rela& entry) {
    const auto symbol = symbols_.read<Elf64_Sym>(ELF64_R_SYM(entry.r_info) * sizeof(Elf64_Sym));
    if (!symbol || symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS) return;
    const auto type = ELF64_ST_TYPE(symbol->st_info);
    if (type == STT_GNU_IFUNC || type == STT_TLS) return;
    found_.push_back({entry.r_offset, kRelative, symbol->st_value + static_cast<std::uint64_t>(entry.r_addend)});
  }

  // Without a symbol it is about the object itself.
  void add_thread_word(const GElf_Rela& entry, std::uint32_t type) {
    ThreadWord word{.place = entry.r_offset, .is_distance = type == arch::kThreadDistance};
    word.data = static_cast<std::uint64_t>(entry.r_addend);
    if (const std::uint64_t number = ELF64_R_SYM(entry.r_info); number != 0) {
      const auto symbol = symbols_.read<Elf64_Sym>(number * sizeof(Elf64_Sym));
      if (!symbol || symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_TLS) return;
      word.data += symbol->st_value;
      word.size = symbol->st_size;
      word.is_by_name = true;
    }
    words_.push_back(word);
  }

  const Image& image_;
  const Wanted wanted_;
  BytesView symbols_;
  std::vector<Relocation> found_;
  std::vector<ThreadWord> words_;
  std::set<std::uint64_t> places_;  // of words with a place in a module's data
};

// With a libelf handle of its own, so that it may be called from several threads.
template <class Item>
std::vector<Item> gathered(const ElfFile& file, Wanted wanted, std::vector<Item> (Gather::*take)()) {
  const Result<Image> image = Image::parse(BytesView(file.bytes()));
  if (!image) return {};
  Gather gather(*image, wanted);
  gather.add_all();
  return (gather.*take)();
}

}  // namespace

std::vector<Relocation> relocations_of(const ElfFile& file) { return gathered(file, Wanted::choices, &Gather::take); }

std::vector<Relocation> own_symbols_of(const ElfFile& file) { return gathered(file, Wanted::symbols, &Gather::take); }

std::vector<ThreadWord> thread_words_of(const ElfFile& file) {
  return gathered(file, Wanted::threads, &Gather::take_thread_words);
}

// An even entry is the address of a word; each bit of an odd one but the lowest stands for one of the 63 words after those that
// went before (the generic ABI, DT_RELR). Every place is a word of the file, so there are no more than fit into it.
std::vector<std::uint64_t> packed_places_of(const ElfFile& file, std::uint64_t divisor, std::uint64_t remainder) {
  constexpr std::uint64_t kWord = sizeof(Elf64_Relr), kBits = 63;
  const Result<Image> image = Image::parse(BytesView(file.bytes()));
  const auto table = image ? image->dynamic(DT_RELR) : std::nullopt,
             size = image ? image->dynamic(DT_RELRSZ) : std::nullopt;
  std::vector<std::uint64_t> places;
  if (!table || !size) return places;
  const std::uint64_t most = file.bytes().size() / kWord;
  const BytesView entries = image->bytes_at(*table).slice(0, *size);
  std::uint64_t next = 0;
  const auto add = [&](std::uint64_t place) {
    if (place % divisor == remainder && places.size() < most) places.push_back(place);
  };
  for (std::uint64_t at = 0; entries.holds(at, kWord); at += kWord) {
    const std::uint64_t entry = *entries.read<std::uint64_t>(at);
    if ((entry & 1) == 0) add(entry);
    for (std::uint64_t bit = 0; (entry & 1) != 0 && bit < kBits; ++bit)
      if ((entry >> (bit + 1) & 1) != 0) add(next + bit * kWord);
    next = (entry & 1) == 0 ? entry + kWord : next + kBits * kWord;
  }
  std::sort(places.begin(), places.end());
  return places;
}

std::vector<CopiedSymbol> copies_of(const ElfFile& program) {
  constexpr std::uint64_t kMostName = 4096;
  const Result<Image> image = Image::parse(BytesView(program.bytes()));
  if (!image) return {};
  const auto table = image->dynamic(DT_RELA), size = image->dynamic(DT_RELASZ);
  const auto symbols = image->dynamic(DT_SYMTAB), names = image->dynamic(DT_STRTAB);
  if (!table || !size || !symbols || !names) return {};
  const BytesView entries = image->bytes_at(*table), symbol_table = image->bytes_at(*symbols);
  std::vector<CopiedSymbol> copies;
  for (std::uint64_t at = 0; at + sizeof(Elf64_Rela) <= *size; at += sizeof(Elf64_Rela)) {
    const auto entry = entries.read<Elf64_Rela>(at);
    if (!entry) break;
    if (ELF64_R_TYPE(entry->r_info) != arch::kCopied) continue;
    const auto symbol = symbol_table.read<Elf64_Sym>(ELF64_R_SYM(entry->r_info) * sizeof(Elf64_Sym));
    const auto name = symbol ? image->bytes_at(*names).text(symbol->st_name, kMostName) : std::nullopt;
    copies.push_back({name ? std::string(*name) : std::string(), entry->r_offset});
  }
  return copies;
}

std::vector<std::uint64_t> relocated_code_of(const ElfFile& file) {
  const Result<Image> image = Image::parse(BytesView(file.bytes()));
  const bool changes =
      image && (image->dynamic(DT_TEXTREL) || (image->dynamic(DT_FLAGS).value_or(0) & DF_TEXTREL) != 0);
  if (!changes) return {};
  Gather gather(*image, Wanted::code);
  gather.add_all();
  std::vector<std::uint64_t> places;
  for (const Relocation& one : gather.take()) places.push_back(one.place);
  std::sort(places.begin(), places.end());
  return places;
}

}  // namespace uprobe::elf
