// SPDX-License-Identifier: MIT
// An ELF file as the planner sees it: symbols, function ranges, file offset <-> link-time address, identity.
//
// The file is read once, into memory: later changes to the file have no effect here, and a file that is truncated while it is
// open cannot kill the reader. Every access is checked, so damaged and hostile files give errors or empty results. Symbols and
// ranges are gathered at the first request; all const functions may be called from several threads.
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
#include "engine/facts/content_key.h"
#include "engine/names/demangle.h"

namespace uprobe::elf {

// Two paths with the same identity are the same file.
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
  std::string name;     // without version
  std::string version;  // "GLIBC_2.2.5", empty if none
  bool default_version = true;
  std::uint64_t address = 0;  // link time
  std::uint64_t size = 0;
  Binding binding = Binding::global;
  bool is_function = false;       // STT_FUNC, STT_GNU_IFUNC or STT_NOTYPE, in executable bytes of the file
  bool is_label = false;          // STT_NOTYPE: assembly code, perhaps data
  bool is_ifunc = false;          // the resolver: it runs once, at binding, and returns the function
  bool dynamic = false;           // in .dynsym (perhaps in .symtab too)
  bool is_of_debug_file = false;  // only a debug file has the name
};

// [begin, end) in link-time addresses.
struct Range {
  std::uint64_t begin = 0, end = 0;
  bool operator==(const Range&) const = default;
  bool holds(std::uint64_t address) const { return begin <= address && address < end; }
};

class DebugNames;
struct RseqSection;

// What the dynamic section tells the loader.
struct LinkNames {
  std::vector<std::string> needed;  // DT_NEEDED
  std::string soname, rpath, runpath;
};

// Who has named a file. A target has made the file that it names: see kMostOfTarget in elf_file.cpp.
enum class NamedBy : std::uint8_t { user, target };

class ElfFile {
 public:
  // Opens and checks: ELF64, this machine, ET_EXEC or ET_DYN, program headers inside the file. Works without section headers
  // (.dynsym through PT_DYNAMIC, function ranges through PT_GNU_EH_FRAME). Never waits (refuses fifos and devices).
  // Error::where is the path, the text reads on from it: not_found "No such file or directory"; refused "is a
  // directory", "is a 32-bit program"; damaged "is not an ELF file"; limit; system "cannot be opened: Permission
  // denied".
  static Result<ElfFile> open(const std::string& path, NamedBy whom = NamedBy::user);
  // The same from bytes in memory, which are copied; the identity is zero.
  static Result<ElfFile> parse(std::string path, std::span<const std::uint8_t> bytes);
  ElfFile(ElfFile&&) noexcept;
  ElfFile& operator=(ElfFile&&) noexcept;
  ~ElfFile();

  const std::string& path() const;
  Identity identity() const;
  std::span<const std::uint8_t> build_id() const;  // empty if none
  std::span<const Segment> segments() const;       // PT_LOAD, by address
  std::uint64_t entry() const;                     // e_entry, link time
  bool is_position_independent() const;            // ET_DYN
  bool is_program() const;                         // ET_EXEC, or a PIE marked as such: its symbols are its own
  const std::string& interpreter() const;          // empty: static (or a library)
  LinkNames link_names() const;
  std::span<const std::uint8_t> bytes() const;  // the file's contents
  // By which facts about it are kept from run to run (engine/facts/kept_facts.h). Nothing: they are not, since it is small, or other users may
  // write to it, or nothing is kept at all.
  std::optional<facts::ContentKey> facts_key() const;

  std::optional<std::uint64_t> address_of_offset(std::uint64_t offset) const;  // through PT_LOAD
  std::optional<std::uint64_t> offset_of_address(std::uint64_t address) const;
  bool is_executable_offset(std::uint64_t offset) const;

  // The bytes of a section of this name; empty if it has none.
  std::span<const std::uint8_t> section(std::string_view name) const;

  // False: "stripped" (only .dynsym is left, or nothing), and no debug file has the names.
  bool has_names() const;
  // Every function symbol of .symtab and .dynsym that lies in executable bytes of the file, sorted by address, then
  // name; the same (name, version, address) once, and a name without version only if it has none with one.
  std::span<const Symbol> functions() const;
  std::span<const Symbol> functions_from(std::uint64_t address) const;  // those at or after it
  // The same, and of a stripped file those of its debug file or MiniDebugInfo: names for the user (see debug_names.h).
  std::span<const Symbol> named_functions() const;
  // The one that begins last of those up to an address; of several at one place the last of the file's own.
  std::optional<Symbol> function_before(std::uint64_t address) const;
  // Every data symbol (STT_OBJECT) of .symtab and .dynsym that has a size, in the same order.
  std::span<const Symbol> data_symbols() const;
  // Any symbol of the file itself, data included: for @SYMBOL and agent lookups. NAME, NAME@VERSION or NAME@@VERSION. Of
  // several a global one, with the default version, at the lowest address.
  std::optional<Symbol> find_any(std::string_view name) const;

  // The addresses that symbols of this name (as above) have, each once and ascending; default versions before others. A debug
  // file is asked for names that the file itself does not have.
  std::vector<std::uint64_t> addresses_of(std::string_view name) const;

  // Functions called `name`: exact symbol name, NAME@VERSION or NAME@@VERSION (which must be the default), else a
  // demangled C++ name: with or without its parameter list, and without a template's return type and arguments; spaces
  // are ignored. Several symbols at one address count once. Without a version the default version precedes other
  // versions of the name, and a name of the file itself one of its debug file. More than one result: the name is
  // ambiguous (local functions of one name, overloads). Sorted by address.
  std::vector<Symbol> find_functions(std::string_view name) const;
  // Names most similar to `name`, best first, at most `most`; C++ names without parameter list.
  std::vector<std::string> close_names(std::string_view name, std::size_t most = 3) const;

  // Function bodies: symbols with a size, and the FDEs of .eh_frame that no symbol starts at; sorted, no two with one
  // begin, clipped to their segment's file bytes. A range may lie inside another; the procedure linkage table is one.
  std::span<const Range> function_ranges() const;
  // The body that contains the address; of nested bodies the one that begins last.
  std::optional<Range> range_at(std::uint64_t address) const;
  // Whether the tables tell unwinders that signal handlers return to this address (so that they need not recognise its bytes).
  bool is_signal_return(std::uint64_t address) const;
  // Whether the loader writes to these bytes of code before they run, so that the file does not show the final code.
  bool is_relocated_code(std::uint64_t address, std::uint64_t size) const;
  // Link-time addresses where an instruction certainly starts: typed function symbols, FDEs, the entry point,
  // initialisers and finalisers. Sorted, each once. Without labels (symbols without type): they may name
  // data.
  std::vector<std::uint64_t> known_starts() const;
  // As in rseq_sections.h.
  std::span<const RseqSection> rseq_sections() const;

 private:
  struct Data;
  explicit ElfFile(std::unique_ptr<Data> data);
  const DebugNames* debug_names() const;
  std::unique_ptr<Data> data_;
};

}  // namespace uprobe::elf
