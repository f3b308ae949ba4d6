// SPDX-License-Identifier: MIT
// The time of whole programs under uprobe-run, in seconds on the wall, and their memory.
#pragma once

#include <cstdint>

#include "bench/workshop.h"
#include "engine/base/result.h"

namespace uprobe::bench {

struct LaunchTimes {
  double untraced = 0, one_probe = 0,
         crowd = 0;  // from starting the command to main() of the target; crowd: 20,000 probes
  // From just before the target's execve of itself to the new main(): all files are parsed and planned by then.
  double exec_one_probe = 0, exec_crowd = 0;
  double resident = 0, mapped = 0;  // bytes of anonymous memory that the crowd's probes take in the target, each
};
// The medians of `repetitions`, taken in turn.
Result<LaunchTimes> measure_launches(const Workshop& workshop, Tier tier, int repetitions);

// From the first original byte that comes back to the last, of 20,000 probes, when the session ends and the program goes on.
Result<double> measure_disarming(const Workshop& workshop, Tier tier, int repetitions);

// A target that is launched, hits one probe with three arguments `hits` times and ends; the trace is written to a file. From
// start to end of uprobe-run. Fails unless every hit was recorded or counted as lost.
struct WholeRun {
  double seconds = 0, lost = 0;  // medians; lost: share of the hits
};
Result<WholeRun> measure_whole_run(const Workshop& workshop, Tier tier, std::uint64_t hits, int repetitions);

}  // namespace uprobe::bench
