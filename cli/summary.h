// SPDX-License-Identifier: MIT
// The end of a run, in words: a line per probe, the total, and losses with their reasons.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/types.h"

namespace uprobe::cli {

// All lines, each with its newline; empty when there is nothing to say. Shows the tiers where there are several probes, or if
// `verbose`.
std::string render_summary(const Summary& summary, bool color, bool verbose = false);

// Hits that were not recorded, for whatever cause.
std::uint64_t lost_count(const ProbeSummary& probe);

// Whether records were lost, which the user must always be told.
bool has_losses(const Summary& summary);

// Lines for the end of a trace file.
std::string as_comments(std::string_view lines);

// uprobe_profile's lines, "  PATH EVENT HITS MISSES": hits are all that arrived, misses are the lost ones among them.
std::string render_profile(const Summary& summary);

}  // namespace uprobe::cli
