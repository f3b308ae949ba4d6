// SPDX-License-Identifier: MIT
// What --version prints: the tool, the commit it was built from, the agent's ABI, the libraries.
#pragma once

#include <string>

namespace uprobe::cli {

// The commit of the source tree at build time, or "unknown" (cmake/Commit.cmake writes it).
const char* commit();

std::string version_text();

}  // namespace uprobe::cli
