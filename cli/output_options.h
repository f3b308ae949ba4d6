// SPDX-License-Identifier: MIT
// The options that say in which format the trace is written, and whether the others go with it.
#pragma once

#include <string>

#include "cli/options.h"
#include "engine/base/result.h"

namespace uprobe::cli {

Status set_format(Options& options, const std::string& name);
// Whether the format can hold what else the options ask for.
Status settle_output(const Options& options);

// Whether the names of the columns are printed first.
bool wants_header(const Options& options);
// Whether lines of text can stand among the records.
bool takes_text(const Options& options);
bool has_fixed_fields(const Options& options);

}  // namespace uprobe::cli
