// SPDX-License-Identifier: MIT
// --check, --list-events and --format-file: what definitions would define, and what is wrong with them. Nothing runs.
#pragma once

#include <string>

#include "engine/resolve/check.h"

namespace uprobe::cli {

// One JSON object on one line: {"accepted", "errno", "error", "caret", "listing", "formats"}, as recorded answers of
// kernels have them. In its strings each byte is one character (Latin-1), so that every name passes unchanged. The kernel
// refuses some mistakes without a word: "error" and "caret" are null then if `strict`, and else hold what we say.
std::string render_check_json(const CheckReport& report, bool strict);

// "p:GROUP/EVENT PATH:OFFSET NAME=FETCH\n"...
std::string render_listing(const CheckReport& report);

// The events' format files, a blank line between two.
std::string render_formats(const CheckReport& report);

}  // namespace uprobe::cli
