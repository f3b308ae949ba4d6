// SPDX-License-Identifier: MIT
// What the arming of all processes of a session shares: the options, the facts known of files and processes, and the report.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/arm/file_jumps.h"
#include "engine/arm/internal_points.h"
#include "engine/arm/object_places.h"
#include "engine/arm/probe_set.h"
#include "engine/base/notes.h"
#include "engine/elf/relocations.h"
#include "engine/flow/sparse_set.h"
#include "engine/plan/tier.h"
#include "engine/process/block_cache.h"
#include "engine/trace/area.h"

namespace uprobe::control {

struct ArmOptions {
  bool ends_too = false;                     // the agent also has to see the end of the program
  bool is_preloaded = false;                 // ld.so knows the agent
  plan::Tier tier = plan::Tier::breakpoint;  // jumps need the next two
  plan::FlowCache* flows = nullptr;          // both must outlive the armer
  const trace::Area* area = nullptr;
  bool insists_on_stubs = false;  // also in programs whose unwinders are not known
};

// The probes that a process lost because they were inside a restartable sequence (barring.h).
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
  plan::SparseSet jumps, breakpoints, hardware;   // events that are armed in that way somewhere
  std::map<std::uint16_t, std::string> against;   // event -> why it is not a jump there
  std::vector<BarredReport> barred;               // kMostBarred at most
};

// Breakpoints that this tool itself has written where a jump is to come (future_jumps.h). Others look alike: those where a foreign
// breakpoint was found on a jump, which may still be there.
class AwaitedJumps {
 public:
  void set(pid_t pid, Addr at, bool is_awaited) {
    if (is_awaited) places_[pid].insert(at);
    if (const auto known = places_.find(pid); !is_awaited && known != places_.end()) known->second.erase(at);
  }
  void forget(pid_t pid) { places_.erase(pid); }
  bool has(pid_t pid, Addr at) const {
    const auto found = places_.find(pid);
    return found != places_.end() && found->second.contains(at);
  }
  template <class Ended>
  void forget_if(Ended ended) {
    std::erase_if(places_, [&](const auto& known) { return ended(known.first); });
  }

 private:
  std::map<pid_t, std::set<Addr>> places_;
};

struct ArmState {
  // Both arguments must outlive it.
  ArmState(const ProbeSet& its_probes, const ArmOptions& its_options)
      : probes(its_probes),
        options(its_options),
        own(probes, {options.ends_too, options.is_preloaded, options.insists_on_stubs}, report.notes) {
    if (options.tier != plan::Tier::breakpoint && options.flows != nullptr) jumps.emplace(*options.flows, own);
  }
  ArmState(const ArmState&) = delete;
  ArmState& operator=(const ArmState&) = delete;

  const ProbeSet& probes;
  const ArmOptions options;
  AwaitedJumps awaited;
  ArmReport report;
  InternalPoints own;
  std::optional<JumpPlanner> jumps;  // nothing: breakpoints only
  std::map<const elf::ElfFile*, std::optional<std::vector<elf::Relocation>>> relocations;
  BlockCache known;
  ObjectPlaces objects;
};

}  // namespace uprobe::control
