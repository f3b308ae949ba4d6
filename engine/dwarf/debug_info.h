// SPDX-License-Identifier: MIT
// Debug information (DWARF, by libdw): the code of source lines, and the places of variables at an address.
//
// No guesses: a line without code, and a variable that has no location at a place or one that a fetch cannot follow, is an
// error with the reason. Addresses are link-time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/elf/elf_file.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::dwarf {

// A line of a function that has code.
struct CodeLine {
  std::string file;  // as given to the compiler
  int line = 0;
};

// Whether a path names a file as the user does, by the last of its parts: "src/file.c" of "/home/user/src/file.c".
bool ends_with_path(std::string_view path, std::string_view end);

// A variable that is visible at a place.
struct NamedVariable {
  std::string name, type;
  bool is_parameter = false;
  std::string problem;  // why it cannot be fetched there; empty: it can
};

inline constexpr std::size_t kMostCopies = 16'384;  // of the functions of one name

// A place where a compiler has put a function's code into a caller; or a clone of it with a symbol of its own ("f.isra.0").
struct InlinedCopy {
  std::uint64_t address = 0;  // of its first instruction: control passes it once in each call
  bool is_clone = false;
  std::uint32_t number = 0;  // in the list that it is from
  std::string problem;       // why no such instruction is known; empty: it is
};

class DebugInfo {
 public:
  // Code::refused for a file without debug information. The file must outlive it.
  static Result<DebugInfo> open(const elf::ElfFile& file);
  DebugInfo(DebugInfo&&) noexcept;
  DebugInfo& operator=(DebugInfo&&) noexcept;
  ~DebugInfo();

  // The build id of the file that dwz has made of what several have in common, if there has to be one and it was not found.
  std::span<const std::uint8_t> missing_shared() const;

  // Where a line's code begins: once in each function, and in each copy of an inlined one, with code of that line. `file` is
  // the end of the source's path. In one function only, unless its name is empty.
  Result<std::vector<std::uint64_t>> find_line(const std::string& file, int line,
                                               const std::string& function = {}) const;

  // The file and line of a function's name. Code::not_found, or an error that names two of several.
  Result<CodeLine> declaration_of(const std::string& function) const;

  // A function that was compiled without optimisation stores its arguments into its frame first: the address after that, if
  // `address` is its first instruction. Else `address`.
  std::uint64_t after_prologue(std::uint64_t address) const;

  // Fills in the fetch of a variable by the name in `argument`, at an address: steps, sink, and the type as far as none was
  // given. The error's column is in the expression.
  Status find_variable(std::uint64_t address, spec::Argument& argument) const;

  // The same for a result of the function that begins at the address, as the function returns. Go's alone have names.
  Status find_result(std::uint64_t address, spec::Argument& argument) const;

  // Of the function at an address: its lines with code, and the variables there.
  std::vector<CodeLine> lines_of(std::uint64_t address) const;
  std::vector<NamedVariable> variables_at(std::uint64_t address) const;

  // The inlined copies of the functions of a name, which is one of those that ElfFile::find_functions() takes. Code::refused
  // where there are too many, or too much debug information to look through. The list is kept until the next one is made.
  Result<std::vector<InlinedCopy>> copies_of(const std::string& function) const;

  // As find_variable() and variables_at(), at the beginning of a copy of that list and in its own scope: of its variables alone,
  // not those of functions that are inlined at the same address, or around it. And the lines of the function in its copies.
  Status find_copys_variable(std::uint32_t copy, spec::Argument& argument) const;
  std::vector<NamedVariable> variables_of_copy(std::uint32_t copy) const;
  std::vector<CodeLine> lines_of_copies() const;

  struct Handles;  // of this folder's own files

 private:
  explicit DebugInfo(std::unique_ptr<Handles> handles);
  std::unique_ptr<Handles> handles_;
};

}  // namespace uprobe::dwarf
