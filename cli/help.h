// SPDX-License-Identifier: MIT
// The text of --help. The parser's table (options.cpp) has the options; a test compares the two.
#pragma once

#include <string>

namespace uprobe::cli {

std::string help_text();

}  // namespace uprobe::cli
