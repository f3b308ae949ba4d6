// SPDX-License-Identifier: MIT
// A way to the returns of a function that is right for it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/flow/entries.h"
#include "engine/flow/flow_cache.h"
#include "engine/plan/exits.h"
#include "engine/plan/resolve.h"
#include "engine/plan/return_mode.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::plan {

struct ReturnPlan {
  ReturnMode mode = ReturnMode::exits;  // never automatic
  std::vector<Exit> exits;              // with ReturnMode::exits: all there are
  std::vector<Site> sites;              // theirs, in the same order
};

class ReturnPlanner {
 public:
  // The flows must outlive it.
  explicit ReturnPlanner(FlowCache& flows) : flows_(flows) {}

  // For a return probe at a site. Code::refused with a text that reads on from nothing: not at the beginning of a function, or
  // no way of the wanted mode is right for it; with the column of an argument that cannot be had.
  Result<ReturnPlan> plan(const spec::ProbeSpec& spec, const Site& site, ReturnMode wanted);

 private:
  // `stub_help` continues the help of what a stub could do.
  Result<ReturnPlan> plan_exits(const spec::ProbeSpec& spec, const Site& site, const char* stub_help);
  const FunctionEntries& entries_of(const FileFlow& flow);

  FlowCache& flows_;
  std::map<const FileFlow*, std::unique_ptr<FunctionEntries>> entries_;
};

}  // namespace uprobe::plan
