// SPDX-License-Identifier: MIT
// The end of a run, in words: a line per probe, the total, what was lost and why.
#pragma once

#include <string>
#include <string_view>

#include "engine/types.h"

namespace uprobe::cli {

// All lines, each ended; empty when there is nothing to say. The tiers are told where there are several probes, or `verbose`.
std::string render_summary(const Summary& summary, bool color, bool verbose = false);

// Whether something was lost, which the user must hear of.
bool has_losses(const Summary& summary);

// Lines for the end of a trace file.
std::string as_comments(std::string_view lines);

// uprobe_profile's lines, "  PATH EVENT HITS MISSES": hits are all that arrived, misses those of them that were lost.
std::string render_profile(const Summary& summary);

}  // namespace uprobe::cli
