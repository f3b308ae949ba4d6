// SPDX-License-Identifier: MIT
// Where a file that events read data of is in a process (@OBJECT:SYMBOL). Reads files and mappings; what is not certain is not there.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/arm/probe_set.h"
#include "engine/elf/relocations.h"
#include "engine/shared/process_block.h"
#include "engine/target/target.h"

namespace uprobe::control {

class ObjectPlaces {
 public:
  // All zero: it is not mapped, mapped twice, mapped in part, or not as it was when it was read; or it is a library whose data may be
  // the program's own, and the program is not known. `maps` are the target's. `why`: what its user should know of that, which is nothing
  // where it is just not mapped.
  shared::MappedObject find(target::Target& target, const std::vector<target::Mapping>& maps, const NamedObject& object,
                            std::string& why);

 private:
  // What a process runs.
  struct Program {
    std::shared_ptr<const elf::ElfFile> file;
    std::vector<elf::CopiedSymbol> copies;
  };
  const Program* program_of(pid_t pid);
  std::optional<std::uint64_t> bias_of_exported(pid_t pid, const std::vector<target::Mapping>& maps,
                                                const NamedObject& object, std::uint64_t bias, std::string& why);

  std::map<FileVersion, Program> programs_;  // without file: not one that is understood
};

}  // namespace uprobe::control
