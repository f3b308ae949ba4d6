// SPDX-License-Identifier: MIT
// Reads symbol tables and versions, trusting no count, offset or name in them.
#include "engine/elf/symbol_tables.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace uprobe::elf {
namespace {

constexpr std::uint64_t kMaxNameBytes = 65536;
constexpr std::uint64_t kMaxVersionBytes = std::uint64_t{16} << 20;  // of definitions; libc has 1.5 KiB of them
constexpr std::uint16_t kVersionHidden = 0x8000;
constexpr std::uint16_t kVersionIndex = 0x7fff;
constexpr std::uint16_t kFirstVersion = 2;  // 0 is local, 1 is the file's base version

// Symbols may share the bytes of their names, so a file's names can be longer than the file. Real tables stay below twice.
std::uint64_t name_budget(std::uint64_t string_bytes) { return 8 * string_bytes + (std::uint64_t{16} << 20); }

// A GNU hash table does not give the number of symbols: the end of the last chain does.
std::uint64_t count_by_gnu_hash(BytesView table) {
  const auto buckets = table.read<std::uint32_t>(0);
  const auto first_hashed = table.read<std::uint32_t>(4);
  const auto bloom_words = table.read<std::uint32_t>(8);
  if (!buckets || !first_hashed || !bloom_words) return 0;
  const std::uint64_t buckets_at = 16 + std::uint64_t{*bloom_words} * 8;
  const std::uint64_t chains_at = buckets_at + std::uint64_t{*buckets} * 4;
  if (!table.holds(0, chains_at)) return 0;
  std::uint32_t last = 0;
  for (std::uint64_t at = buckets_at; at < chains_at; at += 4) last = std::max(last, *table.read<std::uint32_t>(at));
  if (last < *first_hashed) return *first_hashed;
  for (std::uint64_t index = last;; ++index) {
    const auto hash = table.read<std::uint32_t>(chains_at + (index - *first_hashed) * 4);
    if (!hash) return index;
    if ((*hash & 1) != 0) return index + 1;
  }
}

std::uint64_t dynamic_symbol_count(const Image& image) {
  if (const auto hash = image.dynamic(DT_HASH)) return image.bytes_at(*hash).read<std::uint32_t>(4).value_or(0);
  if (const auto hash = image.dynamic(DT_GNU_HASH)) return count_by_gnu_hash(image.bytes_at(*hash));
  return 0;
}

Binding binding_of(const GElf_Sym& entry) {
  switch (ELF64_ST_BIND(entry.st_info)) {
    case STB_LOCAL:
      return Binding::local;
    case STB_WEAK:
      return Binding::weak;
    default:
      return Binding::global;
  }
}

// Undefined, absolute and common symbols have no place in the image; sections, files and thread-local ones no address.
bool has_address(const GElf_Sym& entry) {
  if (entry.st_shndx == SHN_UNDEF || entry.st_shndx == SHN_ABS || entry.st_shndx == SHN_COMMON) return false;
  const int type = ELF64_ST_TYPE(entry.st_info);
  return type != STT_SECTION && type != STT_FILE && type != STT_TLS;
}

// The linker writes versions into the names of .symtab: "foo@V1", "foo@@V2" (the default).
void split_version(RawSymbol& symbol) {
  const std::size_t at = symbol.name.find('@');
  if (at == std::string_view::npos || at == 0) return;
  const bool is_default = symbol.name.substr(at).starts_with("@@");
  const std::string_view version = symbol.name.substr(at + (is_default ? 2 : 1));
  if (version.empty()) return;
  symbol.version = version;
  symbol.default_version = is_default;
  symbol.name = symbol.name.substr(0, at);
}

// libelf gives data of another type where a section says that it is compressed.
std::uint64_t count_of(const Elf_Data* entries) {
  return entries != nullptr && entries->d_type == ELF_T_SYM ? entries->d_size / sizeof(Elf64_Sym) : 0;
}

bool begins_with(BytesView names, std::uint64_t offset, std::string_view beginning) {
  if (beginning.empty()) return true;
  const BytesView text = names.slice(offset, beginning.size());
  return text.size() == beginning.size() && std::memcmp(text.span().data(), beginning.data(), beginning.size()) == 0;
}

}  // namespace

SymbolTables::SymbolTables(const Image& image) {
  find_symtab(image);
  find_dynsym(image);
}

// Names are read from the bytes of the string table and not by elf_strptr: a .dynsym without section headers has no section of
// names, and elf_strptr searches for the table's last NUL at each call, which without one costs (symbols * bytes), and returns
// names of any length.
void SymbolTables::find_symtab(const Image& image) {
  const Section* section = image.find_section(SHT_SYMTAB);
  if (section == nullptr) return;
  const auto names = std::find_if(image.sections().begin(), image.sections().end(),
                                  [&](const Section& one) { return one.index == section->header.sh_link; });
  if (names == image.sections().end() || names->header.sh_type != SHT_STRTAB) return;
  symtab_.entries = image.section_data(section->index);
  symtab_.count = count_of(symtab_.entries);
  symtab_.names = bytes_of(image.section_data(names->index));
}

void SymbolTables::find_dynsym(const Image& image) {
  const auto entries = image.dynamic(DT_SYMTAB);
  const auto names = image.dynamic(DT_STRTAB);
  const auto name_bytes = image.dynamic(DT_STRSZ);
  if (!entries || !names || !name_bytes) return;
  dynsym_.entries = image.table_at(*entries, dynamic_symbol_count(image) * sizeof(Elf64_Sym), ELF_T_SYM);
  dynsym_.count = count_of(dynsym_.entries);
  dynsym_.names = image.bytes_at(*names).slice(0, *name_bytes);
  if (const auto versions = image.dynamic(DT_VERSYM))
    dynsym_.versions = image.table_at(*versions, dynsym_.count * sizeof(Elf64_Versym), ELF_T_HALF);
  read_version_names(image, dynsym_.names);
}

// Only definitions count: a needed version belongs to symbols of other files.
void SymbolTables::read_version_names(const Image& image, BytesView names) {
  const auto table = image.dynamic(DT_VERDEF);
  const auto count = image.dynamic(DT_VERDEFNUM);
  if (!table || !count) return;
  Elf_Data* definitions = image.table_at(*table, kMaxVersionBytes, ELF_T_VDEF);
  std::uint64_t at = 0;
  for (std::uint64_t left = std::min<std::uint64_t>(*count, kVersionIndex); left != 0; --left) {
    const auto definition = entry_of(gelf_getverdef, definitions, at);
    if (!definition) return;
    const auto name = entry_of(gelf_getverdaux, definitions, at + definition->vd_aux);
    const std::uint16_t index = definition->vd_ndx & kVersionIndex;
    if (name && index >= kFirstVersion) {
      if (index >= version_names_.size()) version_names_.resize(index + std::size_t{1});
      version_names_[index] = names.text(name->vda_name, kMaxNameBytes).value_or(std::string_view());
    }
    if (definition->vd_next == 0) return;
    at += definition->vd_next;
  }
}

void SymbolTables::set_version(RawSymbol& symbol, const Table& table, std::uint64_t index) const {
  const auto version = entry_of(gelf_getversym, table.versions, index);
  if (!version) return split_version(symbol);
  const std::size_t number = *version & kVersionIndex;
  if (number >= version_names_.size() || version_names_[number].empty()) return;
  symbol.version = version_names_[number];
  symbol.default_version = (*version & kVersionHidden) == 0;
}

void SymbolTables::visit_table(const Table& table, bool dynamic, std::string_view beginning,
                               const std::function<void(const RawSymbol&)>& visit) const {
  std::uint64_t budget = name_budget(table.names.size());
  for (std::uint64_t index = 0; index < table.count; ++index) {
    const auto entry = entry_of(gelf_getsym, table.entries, index);
    if (!entry || !has_address(*entry) || !begins_with(table.names, entry->st_name, beginning)) continue;
    const auto name = table.names.text(entry->st_name, kMaxNameBytes);
    // A name without an end was searched all the same.
    const std::uint64_t cost = name ? name->size() : kMaxNameBytes;
    if (cost > budget) return;
    budget -= cost;
    if (!name || name->empty()) continue;
    RawSymbol symbol{.name = *name,
                     .version = {},
                     .dynamic = dynamic,
                     .type = static_cast<std::uint8_t>(ELF64_ST_TYPE(entry->st_info)),
                     .binding = binding_of(*entry),
                     .address = entry->st_value,
                     .size = entry->st_size};
    set_version(symbol, table, index);
    visit(symbol);
  }
}

void SymbolTables::for_each(std::string_view beginning, const std::function<void(const RawSymbol&)>& visit) const {
  const std::lock_guard lock(reading_);
  visit_table(symtab_, false, beginning, visit);
  visit_table(dynsym_, true, beginning, visit);
}

}  // namespace uprobe::elf
