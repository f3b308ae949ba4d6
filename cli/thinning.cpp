// SPDX-License-Identifier: MIT
#include "cli/thinning.h"

#include "cli/calls.h"
#include "cli/usage.h"
#include "engine/export/formats.h"

namespace uprobe::cli {
namespace {

// Whether the printed format leaves short calls out.
bool is_readers(const Options& options) {
  return !records(options) && format::format_called(options.format)->shows_latency;
}

Error unfit(const std::string& option, const std::string& text, const std::string& help = {}) {
  return Error{.code = Code::usage, .text = text, .where = option, .help = help};
}

}  // namespace

Status settle_thinning(const Options& options) {
  const bool is_timed = options.min_latency.count() != 0;
  const std::string option = options.one_in != 0       ? "--sample"
                             : options.per_second != 0 ? "--rate"
                             : is_timed                ? "--min-latency"
                                                       : "";
  if (option.empty()) return ok();
  if (options.mode == Mode::replay && is_timed && options.one_in == 0 && options.per_second == 0)
    return is_readers(options) ? ok() : Status(unfit(option, "it chooses among the calls of a graph", "--graph"));
  if (!is_for_a_run(options)) return unfit(option, "it chooses what a program that runs records");
  if (options.allows_change) return unfit(option, "--allow-change records each change, and this leaves records out");
  if (sums_calls(options) && !records_calls(options))
    return unfit(option, "-c counts all calls, and records none", "-C has both");
  return ok();
}

program::Thinning thinning_of(const Options& options) {
  const auto latency = static_cast<std::uint64_t>(options.min_latency.count());
  return {.one_in = options.one_in == 1 ? 0 : options.one_in,
          .per_second = options.per_second,
          .min_latency = is_readers(options) ? 0 : latency};
}

}  // namespace uprobe::cli
