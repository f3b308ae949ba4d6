// SPDX-License-Identifier: MIT
// Chooses once which points of a file can be jumps: the planner's windows for everything that the session wants there.
#pragma once

#include <map>
#include <memory>

#include "engine/arm/internal_points.h"
#include "engine/arm/probe_set.h"
#include "engine/flow/flow_cache.h"
#include "engine/plan/file_jumps.h"

namespace uprobe::control {

class JumpPlanner {
 public:
  // Both arguments must outlive it.
  JumpPlanner(plan::FlowCache& flows, InternalPoints& own) : flows_(flows), own_(own) {}

  // Valid until the file gets further points.
  plan::FileJumps& of(const FilePoints& file);

 private:
  struct Planned {
    unsigned edition;
    std::unique_ptr<plan::FileJumps> jumps;
  };
  plan::FlowCache& flows_;
  InternalPoints& own_;
  std::map<const elf::ElfFile*, Planned> planned_;
};

}  // namespace uprobe::control
