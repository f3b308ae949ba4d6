// SPDX-License-Identifier: MIT
// The output of --doctor.
#pragma once

#include <string>
#include <vector>

#include "engine/doctor/doctor.h"

namespace uprobe::cli {

// A line for each finding, and one for its advice: what comes from a process is escaped.
std::string render_findings(const std::vector<Finding>& findings);

bool any_bad(const std::vector<Finding>& findings);

}  // namespace uprobe::cli
