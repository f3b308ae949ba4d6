// SPDX-License-Identifier: MIT
// Finds where a process maps a file whose data events read (@OBJECT:SYMBOL). Reads files and mappings; in case of doubt, it is
// not found.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/arm/probe_set.h"
#include "engine/elf/relocations.h"
#include "engine/shared/process_block.h"
#include "engine/target/target.h"

namespace uprobe::control {

// The differences between an object's addresses in a process and its link-time addresses: one for each time that it is mapped
// as a loader maps it, whole. A process that only reads or edits the file has none.
std::set<std::uint64_t> biases_of(pid_t pid, const std::vector<target::Mapping>& maps, const NamedObject& object,
                                  std::string& why);

class ObjectPlaces {
 public:
  // All zero: the file is not mapped, mapped twice, mapped in part, or has changed since it was read; or it is a library whose
  // data may be copied into the program, and the program is not known. `maps`: the target's. `why`: the reason for the user;
  // empty where the file is just not mapped.
  shared::MappedObject find(target::Target& target, const std::vector<target::Mapping>& maps, const NamedObject& object,
                            std::string& why);

 private:
  // The program file of a process.
  struct Program {
    std::shared_ptr<const elf::ElfFile> file;
    std::vector<elf::CopiedSymbol> copies;
  };
  const Program* program_of(pid_t pid);
  std::optional<std::uint64_t> bias_of_exported(pid_t pid, const std::vector<target::Mapping>& maps,
                                                const NamedObject& object, std::uint64_t bias, std::string& why);

  std::map<FileVersion, Program> programs_;  // without `file`: it could not be parsed
};

}  // namespace uprobe::control
