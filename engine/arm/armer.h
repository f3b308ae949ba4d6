// SPDX-License-Identifier: MIT
// Arms a process: every planned point, wherever its file is mapped. Called at the exec stop and whenever the process says that
// its mappings changed; mappings that were looked at before are left alone.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/arm/file_jumps.h"
#include "engine/arm/internal_points.h"
#include "engine/arm/object_places.h"
#include "engine/arm/probe_set.h"
#include "engine/arm/sequence_search.h"
#include "engine/arm/slot_layout.h"
#include "engine/base/notes.h"
#include "engine/elf/relocations.h"
#include "engine/flow/sparse_set.h"
#include "engine/plan/tier.h"
#include "engine/process/block.h"
#include "engine/process/block_cache.h"
#include "engine/target/target.h"

namespace uprobe::control {

// The probes that a process lost because they were inside a restartable sequence (barring.cpp).
struct BarredReport {
  pid_t pid = 0;
  std::string program;  // its name
  std::set<std::uint16_t> events;
  std::string why;
};
inline constexpr std::size_t kMostBarred = 100;

// The results of arming, for the summary. All processes of the session share one report.
struct ArmReport {
  plan::SparseSet armed_events;                   // armed in some process at least once
  Notes notes;                                    // "libx.so: 0x1234 not probed: ..."
  std::map<std::uint16_t, std::string> refusals;  // event -> why it could not be armed somewhere
  std::string first_refusal;                      // of any point, internal points included
  plan::SparseSet jumps, breakpoints;             // events that are armed in that way somewhere
  std::map<std::uint16_t, std::string> against;   // event -> why it is not a jump there
  std::vector<BarredReport> barred;               // kMostBarred at most
};

// Addresses whose contents may have changed.
struct Changed {
  Addr begin, end;
};

// Whether the mapping is code of a file and private to the process: a write to a shared mapping would change the file.
bool can_be_armed(const target::Mapping& mapping);

struct ArmOptions {
  bool ends_too = false;                     // the agent also has to see the end of the program
  bool is_preloaded = false;                 // ld.so knows the agent
  plan::Tier tier = plan::Tier::breakpoint;  // jumps need the next two
  plan::FlowCache* flows = nullptr;          // both must outlive the armer
  const trace::Area* area = nullptr;
  bool insists_on_stubs = false;  // also in programs whose unwinders are not known
};

class Armer {
 public:
  explicit Armer(const ProbeSet& probes, const ArmOptions& options = {});

  // `block` must be the process's. The target is stopped, or one of its threads waits for the tool.
  Status arm(target::Target& target, Block& block, const Changed& changed = {});
  // Does the slow part ahead of time, which needs no stopped process: reads and plans the files that are mapped there.
  void look_ahead(target::Target& target);
  // The same for the block at `block`; does nothing once the breakpoints have been removed (disarm).
  Status arm(target::Target& target, Addr block, const Changed& changed);
  // Turns jumps in a range that the process is about to write into breakpoints, which can stay.
  Status take_jumps(target::Target& target, Addr block, const Changed& range);
  // Changes to a running program (live_add.cpp, live_changes.h). After an Error of add(), which also means that a point had to
  // be refused, remove what was added. `is_live` says which events are left.
  Status add(target::Target& target, Addr block, const ProbeSet& more);
  Status remove(target::Target& target, Addr block, const std::function<bool(std::uint16_t)>& is_live);
  // A breakpoint inside a restartable sequence has made the kernel abort it: removes the probes there for good. `place`: as the
  // thread reported it; `threads`: how many threads the process has now.
  using ThreadCount = std::function<std::size_t()>;
  Status bar(target::Target& target, Addr block, const AbortPlace& place, const ThreadCount& threads);
  // Repairs a running process after foreign breakpoints; see foreign_breakpoints.h. An Error: there is no block.
  Status mend(target::Target& target, Addr block);
  const ArmReport& report() const { return report_; }

  struct Work;  // one arm() in progress; internal to the armer's files

 private:
  struct Barring;  // one bar() in progress
  using StaysFn = std::function<bool(std::uint32_t point, const shared::Consumer&)>;

  Status look_at(Work& work, const target::Mapping& mapping, const KnownMapping* known);
  Status arm_mapping(Work& work, const target::Mapping& mapping);
  Status arm_choices(Work& work, const target::Mapping& mapping);
  Status note_unbound(Work& work);
  Status keep_room(Work& work);
  Status note_objects(Work& work);
  bool follows_returns(Work& work);
  bool finds_stubs(Work& work);
  Status note_code(Work& work, const target::Mapping& mapping);
  Status forbid_stubs(Work& work, const target::Mapping& mapping);
  const PlannedPoint* possible(Work& work, const PlannedPoint& point);
  Status retire(Work& work, const Changed& range);

  Status arm_file(Work& work, const FilePoints& file, const target::Mapping& mapping, const plan::FileJumps* jumps);
  Status arm_ifuncs(Work& work, const FilePoints& file, const target::Mapping& mapping);
  Status consider(Work& work, const PlannedPoint& given, const target::Mapping& mapping, const plan::FileJumps* jumps);
  const plan::Window* window_for(Work& work, const Pending& pending, const target::Mapping& mapping,
                                 const plan::FileJumps* jumps, std::string& why);
  Status join(Work& work, const PlannedPoint& point, std::uint32_t known);
  bool join_pending(Work& work, PlannedPoint& point, const target::Mapping& mapping);
  Status look_at_following(Work& work, std::uint32_t point);
  Status make_breakpoints(target::Target& target, Block& block, const Changed& reach,
                          std::span<const std::uint32_t> jumps);
  Status strip(target::Target& target, Block& block, const StaysFn& stays);
  std::vector<CodeRange> ranges_of(Barring& barring, shared::BarredStep step);
  Status take_barred(Barring& barring, shared::BarredStep step, const std::set<std::uint32_t>& probes);
  Status bar_more(Barring& barring, shared::BarredStep step);
  Status bar_next(Barring& barring);
  Status bar_in(target::Target& target, Block& block, const AbortPlace& place, const ThreadCount& threads);
  void note_barred(const Barring& barring, shared::BarredStep step, const std::set<std::uint16_t>& events);
  void leave_barred_out(Work& work, std::span<const PlannedPoint> points, const target::Mapping& mapping);
  Status uncover(Work& work, const FilePoints& file, const target::Mapping& mapping);
  Status add_in(Work& work, const target::Mapping& mapping, const ProbeSet& more);
  Status list_consumers(Work& work);
  Status list_again(Work& work);
  Status place(Work& work, const target::Mapping& mapping);
  Status publish(Work& work);
  Status write_texts(Work& work);
  // Refuses a point in the present mapping, together with the other exits of its function.
  void refuse(Work& work, const PlannedPoint& point, const std::string& why);
  void note_other(const target::Mapping& mapping, Addr at);

  const ProbeSet& probes_;
  const ArmOptions options_;
  ArmReport report_;
  InternalPoints own_;
  std::optional<JumpPlanner> jumps_;
  std::vector<std::unique_ptr<PlannedPoint>>
      choices_;  // of the present process: implementations that IFUNCs chose, and points that lost consumers
  std::map<const elf::ElfFile*, std::optional<std::vector<elf::Relocation>>> relocations_;
  BlockCache known_;
  ObjectPlaces objects_;
};

}  // namespace uprobe::control
