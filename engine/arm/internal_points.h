// SPDX-License-Identifier: MIT
// The internal points: where a libc changes signals, mappings and programs. Found once per file.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/arm/probe_set.h"
#include "engine/base/notes.h"
#include "engine/flow/system_calls.h"
#include "engine/search/file_look.h"
#include "engine/search/file_search.h"
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
  // The same if it is known; null: it is not.
  const FilePoints* known_in(const target::Mapping& mapping, const FileVersion& version) const;
  // The points in a whole file. Valid until the next trim(), for a probed file for ever.
  const FilePoints& in(const std::shared_ptr<const elf::ElfFile>& file);
  // Targets map new files all the time. Forgets files without probes when there are too many; they are read again if needed.
  void trim() { trim({kMostKept, kMostParts}); }

  // From now on large files are looked into by a thread of its own, which calls `tell` when it has done so. in() takes no more
  // than a little work: a file that is neither known nor small has no points then, and has_put_off() tells so.
  void search_apart(std::function<void()> tell);
  bool searches_apart() const { return search_.has_value(); }
  void end_search() { search_.reset(); }
  // Files that have to be looked into before the process is armed: empty where little is unknown. Trims where no others wait.
  FileSearch::Jobs search_first(const target::Target& target, const std::vector<target::Mapping>& maps);
  // Takes over what the thread has found.
  void take_found();
  // Allows the work of one more pass over a process.
  void begin_pass() { left_ = kMostAtOnce; }
  // Whether in() has left a file out since the last call.
  bool has_put_off() { return std::exchange(has_put_off_, false); }

 private:
  struct Room {
    std::uint64_t bytes;
    std::size_t parts;
  };
  static constexpr std::uint64_t kMostAtOnce = std::uint64_t{1} << 20;  // see work_of()
  static constexpr std::uint64_t kMostKept = std::uint64_t{64} << 20, kMostEver = std::uint64_t{256} << 20;
  static constexpr std::size_t kMostParts = 16384, kMostSearched = 8192, kMostOfLook = 1024;
  void trim(const Room& room);

  bool is_probed(const elf::ElfFile& file) const;
  LookOrder order_for(const target::Target& target, const target::Mapping& mapping, const FileVersion& version) const;
  bool may_look(const LookOrder& order);
  const FilePoints& keep(FileLook look);
  bool search(const FileSearch::Owner& owner, const LookOrder& order, FileSearch::Jobs& jobs);
  bool fears_unwinders() const { return probes_.wants_stubs() && !wishes_.insists_on_stubs; }
  bool fears(const std::string& path) const;
  void add_unwinders(FilePoints& own);

  plan::SystemCallSite beside_probes(const elf::ElfFile& file, plan::SystemCallSite site) const;

  const ProbeSet& probes_;
  const Wishes wishes_;
  Notes& notes_;
  std::map<MappedPart, const FilePoints*> known_;
  std::map<const elf::ElfFile*, FilePoints> by_file_;
  const FilePoints none_{};
  std::uint64_t left_ = 0;  // of the work of this pass
  bool has_put_off_ = false;
  std::map<MappedPart, std::shared_ptr<FileSearch::Job>> searched_;  // that have not been taken over
  std::optional<FileSearch> search_;                                 // last, so that its thread ends first
};

}  // namespace uprobe::control
