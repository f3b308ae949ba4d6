// SPDX-License-Identifier: MIT
// The folder of a run: a copy of the target for each way to trace it (a kernel uprobe belongs to a file and hits in every
// process that runs it), traces, summaries. Removed at the end.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace uprobe::bench {

class Workshop {
 public:
  // `owner`: the process that stands for this run. Its folder may exist already.
  static Result<Workshop> open(pid_t owner);
  static void remove(pid_t owner);
  static void remove_leftovers();  // of runs whose owner was killed

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  // The path of a fresh copy of the target.
  Result<std::string> copy_target(const std::string& name) const;
  Status write(const std::string& name, const std::string& text) const;

 private:
  explicit Workshop(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

// How a hit gets to the agent. A uprobe-run without the option makes breakpoints.
enum class Tier { int3, jump };
const char* name_of(Tier tier);
// The tool's tiers; determined once, before the first tool_command().
Result<std::vector<Tier>> tool_tiers();

// "uprobe-run ... -- target": the tool's command line; the trace goes to the file `trace`. `more`: further options.
std::vector<std::string> tool_command(Tier tier, const std::string& probes_file, const std::string& trace,
                                      const std::string& target, const std::vector<std::string>& more = {});

}  // namespace uprobe::bench
