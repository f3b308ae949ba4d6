// SPDX-License-Identifier: MIT
// What --help prints. The parser's table (options.cpp) knows the options; a test compares the two.
#pragma once

#include <string>

namespace uprobe::cli {

std::string help_text();

}  // namespace uprobe::cli
