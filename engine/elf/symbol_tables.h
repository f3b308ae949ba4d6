// SPDX-License-Identifier: MIT
// The symbols of a file, entry by entry through libelf: .symtab by the section headers, .dynsym and its versions by PT_DYNAMIC,
// where the dynamic linker finds them too and which no program can lack.
#pragma once

#include <gelf.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include "engine/elf/bytes_view.h"
#include "engine/elf/elf_file.h"
#include "engine/elf/image.h"

namespace uprobe::elf {

// A defined, named symbol. The texts are views of the file.
struct RawSymbol {
  std::string_view name;     // without version
  std::string_view version;  // empty if none
  bool default_version = true;
  bool dynamic = false;
  bool is_of_debug_file = false;
  std::uint8_t type = STT_NOTYPE;
  Binding binding = Binding::global;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
};

// The image must outlive it.
class SymbolTables {
 public:
  explicit SymbolTables(const Image& image);

  bool has_symtab() const { return symtab_.count != 0; }
  // Every defined symbol with an address, .symtab first. The total length of the names is bounded by a
  // multiple of the file's size, even for a hostile file. Threads wait for one another.
  void for_each(const std::function<void(const RawSymbol&)>& visit) const { for_each("", visit); }
  // The same of those whose names begin so, which does not look at the others' to their ends.
  void for_each(std::string_view beginning, const std::function<void(const RawSymbol&)>& visit) const;

 private:
  struct Table {
    Elf_Data* entries = nullptr;
    std::uint64_t count = 0;  // of whole entries
    BytesView names;
    Elf_Data* versions = nullptr;  // may be shorter
  };
  void find_symtab(const Image& image);
  void find_dynsym(const Image& image);
  void read_version_names(const Image& image, BytesView names);
  void visit_table(const Table& table, bool dynamic, std::string_view beginning,
                   const std::function<void(const RawSymbol&)>& visit) const;
  void set_version(RawSymbol& symbol, const Table& table, std::uint64_t index) const;

  mutable std::mutex reading_;  // libelf's data
  Table symtab_;
  Table dynsym_;
  std::vector<std::string_view> version_names_;  // by version index
};

}  // namespace uprobe::elf
