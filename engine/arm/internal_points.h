// SPDX-License-Identifier: MIT
// The internal points: where a libc changes signals, mappings and programs. Found once per file.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "engine/arm/probe_set.h"
#include "engine/base/notes.h"
#include "engine/flow/system_calls.h"
#include "engine/target/target.h"

namespace uprobe::control {

class InternalPoints {
 public:
  struct Wishes {
    bool ends_too;          // the agent also has to see the end of the program
    bool is_preloaded;      // ld.so knows the agent
    bool insists_on_stubs;  // use stubs although the unwinders are not known
  };
  // `notes` gets a line for each file that cannot be followed.
  InternalPoints(const ProbeSet& probes, const Wishes& wishes, Notes& notes)
      : probes_(probes), wishes_(wishes), notes_(notes) {}

  // The points in a mapping's file; empty for most files. Valid until the next trim().
  const FilePoints& in(const target::Target& target, const target::Mapping& mapping, const FileVersion& version);
  // The points in a whole file. Valid until the next trim(), for a probed file for ever.
  const FilePoints& in(const std::shared_ptr<const elf::ElfFile>& file);
  // Targets map new files all the time. Forgets files without probes when there are too many; they are read again if needed.
  void trim();

 private:
  bool is_probed(const elf::ElfFile& file) const;
  std::shared_ptr<const elf::ElfFile> file_of(const target::Target& target, const target::Mapping& mapping,
                                              const FileVersion& version);
  bool fears(const std::string& path) const;
  void add_unwinders(FilePoints& own);

  plan::SystemCallSite beside_probes(const elf::ElfFile& file, plan::SystemCallSite site) const;

  const ProbeSet& probes_;
  const Wishes wishes_;
  Notes& notes_;
  using FilePart = std::tuple<FileVersion, std::uint64_t, std::uint64_t>;  // offset, bytes
  std::map<FilePart, const FilePoints*> known_;
  std::map<const elf::ElfFile*, FilePoints> by_file_;
  const FilePoints none_{};
};

}  // namespace uprobe::control
