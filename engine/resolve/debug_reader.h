// SPDX-License-Identifier: MIT
// dwarf::DebugInfo in a process of its own (engine/base/confined.h): libdw reads files that anyone may have made, opens further
// files that they name, and waits if those are FIFOs. Its answers are checked before they are used.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/confined.h"
#include "engine/dwarf/debug_info.h"
#include "engine/elf/elf_file.h"
#include "engine/spec/probe_spec.h"

namespace uprobe {

// The functions of dwarf::DebugInfo. Each may also fail as Confined::ask does; after that all of them do.
class DebugReader {
 public:
  // The file must outlive it. What is not here is fetched by debuginfod, if the user wants that (fetch_debug_information).
  static Result<DebugReader> open(const std::shared_ptr<const elf::ElfFile>& file);
  // The same of what is here, and all of it: nothing is fetched.
  static Result<DebugReader> open_here(const std::shared_ptr<const elf::ElfFile>& file);

  Result<std::vector<std::uint64_t>> find_line(const std::string& file, int line,
                                               const std::string& function = {}) const;
  Result<dwarf::CodeLine> declaration_of(const std::string& function) const;
  Result<std::uint64_t> after_prologue(std::uint64_t address) const;
  Status find_variable(std::uint64_t address, spec::Argument& argument) const;
  Status find_result(std::uint64_t address, spec::Argument& argument) const;
  Result<std::vector<dwarf::CodeLine>> lines_of(std::uint64_t address) const;
  Result<std::vector<dwarf::NamedVariable>> variables_at(std::uint64_t address) const;
  Result<std::vector<dwarf::InlinedCopy>> copies_of(const std::string& function) const;
  Status find_copys_variable(std::uint32_t copy, spec::Argument& argument) const;
  Result<std::vector<dwarf::NamedVariable>> variables_of_copy(std::uint32_t copy) const;
  Result<std::vector<dwarf::CodeLine>> lines_of_copies() const;

 private:
  DebugReader(std::string path, Confined reader) : path_(std::move(path)), reader_(std::move(reader)) {}
  static Result<DebugReader> start_or_fetch(const std::shared_ptr<const elf::ElfFile>& file);
  static Result<DebugReader> start(const std::shared_ptr<const elf::ElfFile>& file);
  Result<std::string> ask(const std::string& request) const;
  Status ask_for_variable(std::string request, spec::Argument& argument) const;

  std::string path_;
  mutable Confined reader_;
  std::string missing_;  // the build id of a file with which this one has debug information in common
};

// Fetches the debug information of a file that has none here by debuginfod. Only for files of root or of the tool's own user: another
// user's file does not choose what the tool asks servers for.
Status fetch_debug_information(const elf::ElfFile& file);

}  // namespace uprobe
