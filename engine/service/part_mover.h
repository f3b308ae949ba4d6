// SPDX-License-Identifier: MIT
// Moves a running process to another live part of its session: all of its threads at once, while none of them is in the middle
// of a record.
#pragma once

#include <sys/types.h>

#include <optional>

#include "engine/base/result.h"
#include "engine/trace/area.h"

namespace uprobe::control {

// Stops the process for some milliseconds. Without a `part` it gets none. An Error without `is_cut_off`: nothing was changed.
// With `is_cut_off`: the process has no part any more and its probes are removed; it runs on unrecorded.
struct MoveFailure {
  Error error;
  bool is_cut_off = false;
};
std::optional<MoveFailure> move_to_part(pid_t pid, const trace::Area& area, std::optional<std::size_t> part);

}  // namespace uprobe::control
