// SPDX-License-Identifier: MIT
// Arms a process: every planned point, wherever its file is mapped. Called at the exec stop and whenever the process says that
// its mappings changed; mappings that were looked at before are left alone.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "engine/arm/arm_state.h"
#include "engine/arm/barring.h"
#include "engine/arm/future_jumps.h"
#include "engine/arm/live_points.h"
#include "engine/arm/process_arming.h"
#include "engine/process/block.h"
#include "engine/target/target.h"

namespace uprobe::control {

class Armer {
 public:
  explicit Armer(const ProbeSet& probes, const ArmOptions& options = {}) : state_(probes, options) {}

  // A process has this block from the tool: blocks of the session may have as much room from now on (block_cache.h).
  void admit(const Block& block) { state_.known.allow(block.head().point_capacity); }
  // Admits a process that has just come, and arms it; `block` is what it was given. The target is stopped, or one of its threads waits
  // for the tool.
  Status arm(target::Target& target, Block& block, const Changed& changed = {});
  // Does the slow part ahead of time, which needs no stopped process: reads and plans the files that are mapped there.
  void look_ahead(target::Target& target);
  // From now on large files are looked into by a thread of its own, which calls `tell` after each; arm() leaves those out that have
  // not been. search_first(): those that have to be before arm() is called for this process. take_found(): call before it.
  void search_apart(std::function<void()> tell) { state_.own.search_apart(std::move(tell)); }
  void end_search() { state_.own.end_search(); }
  FileSearch::Jobs search_first(target::Target& target);
  void take_found() { state_.own.take_found(); }
  // Whether arm() has nothing to do for a process after it has mapped code (process_look.h).
  bool has_nothing_to_arm(target::Target& target, Addr block, const Changed& mapped);
  // The same later, for the block at `block`; does nothing once the breakpoints have been removed (disarm).
  Status arm(target::Target& target, Addr block, const Changed& changed);
  // Call when a block was armed for the first time: requests will name it by its address.
  void keep(Block block) { state_.known.keep(std::move(block)); }
  // Turns jumps in a range that the process is about to write into breakpoints, which can stay (live_points.h).
  Status take_jumps(target::Target& target, Addr block, const Changed& range);
  // Changes to a running program (live_points.h, live_changes.h).
  Status add(target::Target& target, Addr block, const ProbeSet& more);
  Status remove(target::Target& target, Addr block, const std::function<bool(std::uint16_t)>& is_live);
  Status count_semaphores(target::Target& target, Addr block);
  // A point without text in generated code, of a stopped process (live_points.h); and that there can be none for an event.
  Status watch(target::Target& target, Addr block, const WatchedPlace& place);
  void refuse(std::uint16_t event, const std::string& why) { state_.report.refusals[event] = why; }
  // A breakpoint inside a restartable sequence has made the kernel abort it: removes the probes there for good (barring.h).
  Status bar(target::Target& target, Addr block, const AbortPlace& place, const Barring::ThreadCount& threads);
  // Repairs a running process after foreign breakpoints (foreign_breakpoints.h), and writes jumps that have become possible
  // (future_jumps.h). An Error: there is no block.
  Status mend(target::Target& target, Addr block);
  // The part of the time of mend() that went to looking at threads.
  std::chrono::nanoseconds take_look_time() { return future_.take_time(); }
  const ArmReport& report() const { return state_.report; }

 private:
  Status look(target::Target& target, Block& block, const Changed& changed);

  ArmState state_;
  FutureJumps future_{state_};
};

}  // namespace uprobe::control
