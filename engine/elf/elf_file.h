// An ELF file as the planner sees it: symbols, function ranges, file offset <-> link-time address, identity.
// The only folder with libelf. Damaged and hostile files give errors, never a crash.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace uprobe::elf {

// What makes two paths the same file.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const Identity&) const = default;
};

struct Segment {
  std::uint64_t offset = 0, file_bytes = 0, address = 0, memory_bytes = 0;
  bool executable = false, writable = false;
};

enum class Binding : std::uint8_t { local, global, weak };

struct Symbol {
  std::string name;       // without version
  std::string version;    // "GLIBC_2.2.5", empty if none
  bool default_version = true;
  std::uint64_t address = 0;  // link time
  std::uint64_t size = 0;
  Binding binding = Binding::global;
  bool is_function = false;   // STT_FUNC or STT_GNU_IFUNC (or STT_NOTYPE in executable memory)
  bool is_ifunc = false;
  bool dynamic = false;       // from .dynsym
};

// [begin, end) in link-time addresses.
struct Range {
  std::uint64_t begin = 0, end = 0;
};

class ElfFile {
 public:
  // Opens and checks: ELF64, x86-64, ET_EXEC or ET_DYN, program headers inside the file. Works without section headers
  // (.dynsym through PT_DYNAMIC, function ranges through PT_GNU_EH_FRAME).
  static Result<ElfFile> open(const std::string& path);
  ElfFile(ElfFile&&) noexcept;
  ElfFile& operator=(ElfFile&&) noexcept;
  ~ElfFile();

  const std::string& path() const;
  Identity identity() const;
  std::span<const std::uint8_t> build_id() const;       // empty if none
  std::span<const Segment> segments() const;            // PT_LOAD, by address
  std::uint64_t entry() const;                          // e_entry, link time
  bool is_position_independent() const;                 // ET_DYN
  const std::string& interpreter() const;               // empty: static (or a library)
  std::span<const std::uint8_t> bytes() const;          // the file's contents

  std::optional<std::uint64_t> address_of_offset(std::uint64_t offset) const;  // through PT_LOAD
  std::optional<std::uint64_t> offset_of_address(std::uint64_t address) const;
  bool is_executable_offset(std::uint64_t offset) const;

  // Every function symbol of .symtab and .dynsym (also the .gnu_debugdata-less common case), sorted by address; the same
  // (name, version, address) once.
  std::span<const Symbol> functions() const;
  // Every symbol, data included: for @SYMBOL and agent lookups.
  std::optional<Symbol> find_any(std::string_view name) const;

  // Functions called `name`: exact symbol name, NAME@VERSION or NAME@@VERSION, or a demangled C++ name (with or without
  // its parameter list). Several symbols at one address count once. Without a version a default version wins over others.
  std::vector<Symbol> find_functions(std::string_view name) const;
  // Names most like `name`, best first, at most `most`.
  std::vector<std::string> close_names(std::string_view name, std::size_t most = 3) const;

  // Function bodies: symbols with a size, else the FDEs of .eh_frame; sorted, not overlapping in begin.
  std::span<const Range> function_ranges() const;
  // The body that contains the address, if any.
  std::optional<Range> range_at(std::uint64_t address) const;

 private:
  struct Data;
  explicit ElfFile(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

std::string demangle(const std::string& name);  // the name itself when it is not a mangled one

}  // namespace uprobe::elf
