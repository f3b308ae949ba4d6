// SPDX-License-Identifier: MIT
// The table of -c and -C: a row for each function that was called.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/probes_file.h"
#include "engine/base/result.h"
#include "engine/types.h"

namespace uprobe::cli {

// Whether the options ask for sums of calls, and whether they ask for records too.
bool sums_calls(const Options& options);
bool records_calls(const Options& options);
// What -c and -C do not go with.
Status settle_calls(const Options& options);

// The definitions that sum up take the place of the others, or follow them.
void add_sums(Definitions& definitions, bool keeps_others);

inline constexpr std::size_t kAnyWidth = static_cast<std::size_t>(-1);
enum class CallOrder { total, calls, self, mean, p99, longest };

// 1,234 ns, 12.3 us, ...: the largest first, columns aligned, one line about functions that were never called.
// Where the table has only so many `columns`, the less important ones are left out, and long names are cut.
std::string render_calls(std::vector<CallSummary> calls, CallOrder order = CallOrder::total,
                         std::size_t columns = kAnyWidth);
// A JSON array of objects, one line each, and a newline.
std::string render_calls_json(const std::vector<CallSummary>& calls);

}  // namespace uprobe::cli
