// Brings a process to what the session wants: every planned point armed wherever its file is mapped. Called at the exec
// stop and whenever the process says that its mappings changed; those that were looked at before are left alone.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "engine/control/block.h"
#include "engine/control/known_state.h"
#include "engine/control/probe_set.h"
#include "engine/elf/relocations.h"
#include "engine/target/target.h"

namespace uprobe::control {

// What arming found out, for the summary. Shared by all processes of the session.
struct ArmReport {
  std::set<std::uint16_t> armed_events;           // armed in some process at least once
  std::set<std::string> notes;                    // "libx.so: 0x1234 not probed: ..."
  std::map<std::uint16_t, std::string> refusals;  // event -> why it could not be armed somewhere
  std::string first_refusal;                      // of any point, also of one that the agent needs
};

// Addresses whose contents are not what they were.
struct Changed {
  Addr begin, end;
};

class Armer {
 public:
  // `ends_too`: the agent also has to see the program end.
  explicit Armer(const ProbeSet& probes, bool ends_too = false) : probes_(probes), ends_too_(ends_too) {}

  // `block` must be the process's. The target is stopped, or one of its threads waits for us.
  Status arm(target::Target& target, Block& block, const Changed& changed = {});
  // The same for the block at `block`; nothing where the breakpoints have been taken out (disarm).
  Status arm(target::Target& target, Addr block, const Changed& changed);
  const ArmReport& report() const { return report_; }

 private:
  struct Work;  // one arm() under way

  Status arm_mapping(Work& work, const target::Mapping& mapping);
  Status arm_file(Work& work, const FilePoints& file, const target::Mapping& mapping);
  Status arm_ifuncs(Work& work, const FilePoints& file, const target::Mapping& mapping);
  Status arm_choices(Work& work, const target::Mapping& mapping);
  bool join_pending(Work& work, PlannedPoint& point, const target::Mapping& mapping);
  Status place_copies(Work& work, const target::Mapping& mapping);
  Status consider(Work& work, const PlannedPoint& point, const target::Mapping& mapping);
  Status look_behind(Work& work, std::uint32_t point);
  Status note_unbound(Work& work);
  Status look_at(Work& work, const target::Mapping& mapping, const KnownMapping* known);
  Status publish(Work& work);
  Status retire(Work& work, const std::vector<target::Mapping>& maps, const Changed& range);
  void refuse(const PlannedPoint& point, const std::string& why);
  std::shared_ptr<const elf::ElfFile> file_of(const target::Target& target, const target::Mapping& mapping,
                                              const FileVersion& version);
  const FilePoints& system_calls_of(const target::Target& target, const target::Mapping& mapping,
                                    const FileVersion& version);

  const ProbeSet& probes_;
  const bool ends_too_;
  ArmReport report_;
  std::vector<std::unique_ptr<PlannedPoint>> choices_;  // implementations that IFUNCs chose
  std::map<const elf::ElfFile*, std::optional<std::vector<elf::Relocation>>> relocations_;
  KnownState known_;
  // The points that the agent itself needs in a part of a file (offset, bytes), empty for most files.
  using FilePart = std::tuple<FileVersion, std::uint64_t, std::uint64_t>;
  std::map<FilePart, FilePoints> system_calls_;
};

}  // namespace uprobe::control
