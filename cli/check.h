// SPDX-License-Identifier: MIT
// --check, --list-events and --format-file: shows what definitions define, and what is wrong with them. Runs nothing.
#pragma once

#include <string>

#include "engine/resolve/check.h"

namespace uprobe::cli {

// One JSON object on one line: {"accepted", "errno", "error", "caret", "listing", "formats"}, in the form of the recorded
// answers of kernels. Each byte of a string is one character (Latin-1), so that every name passes unchanged. The kernel refuses
// some mistakes without a message: then "error" and "caret" are null if `strict`, and otherwise this tool's own.
std::string render_check_json(const CheckReport& report, bool strict);

// "p:GROUP/EVENT PATH:OFFSET NAME=FETCH\n"...
std::string render_listing(const CheckReport& report);

// The events' format files, separated by blank lines.
std::string render_formats(const CheckReport& report);

}  // namespace uprobe::cli
