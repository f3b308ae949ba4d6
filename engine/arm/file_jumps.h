// SPDX-License-Identifier: MIT
// Which points of a file can be jumps: the planner's windows for all that a session wants there, chosen once.
#pragma once

#include <map>
#include <memory>

#include "engine/arm/internal_points.h"
#include "engine/arm/probe_set.h"
#include "engine/plan/file_jumps.h"
#include "engine/plan/flow_cache.h"

namespace uprobe::control {

class JumpPlanner {
 public:
  // Both outlive it.
  JumpPlanner(plan::FlowCache& flows, InternalPoints& own) : flows_(flows), own_(own) {}

  // Good until the file gets further points.
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
