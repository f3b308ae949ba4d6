// SPDX-License-Identifier: MIT
// Gives a running process another live part of its session: in all of its threads at once, while none of them is in the middle of a
// record.
#pragma once

#include <sys/types.h>

#include <optional>

#include "engine/base/result.h"
#include "engine/trace/area.h"

namespace uprobe::control {

// The process is stopped for it, some milliseconds. No `part`: it gets none. An Error without `is_cut_off`: everything is as it was. With it: the process has
// no part any more and its probes are taken out: it runs on unrecorded.
struct MoveFailure {
  Error error;
  bool is_cut_off = false;
};
std::optional<MoveFailure> move_to_part(pid_t pid, const trace::Area& area, std::optional<std::size_t> part);

}  // namespace uprobe::control
