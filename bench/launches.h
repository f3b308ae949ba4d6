// What whole programs take under uprobe-run, in seconds on the wall.
#pragma once

#include <cstdint>

#include "bench/workshop.h"
#include "engine/base/result.h"

namespace uprobe::bench {

// From starting the command to main() of the target: untraced, with one probe, with 10,000.
struct LaunchTimes {
  double untraced = 0, one_probe = 0, crowd = 0;
};
// The median of `repetitions`, taken in turn.
Result<LaunchTimes> measure_launches(const Workshop& workshop, int repetitions);

// A target that is launched, hits one probe with three arguments `hits` times and ends; the trace is written to a file.
// From start to end of uprobe-run, the median of `repetitions`. Fails unless every hit was recorded.
Result<double> measure_whole_run(const Workshop& workshop, std::uint64_t hits, int repetitions);

}  // namespace uprobe::bench
