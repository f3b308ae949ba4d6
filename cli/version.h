// SPDX-License-Identifier: MIT
// The text of --version: the tool, the commit from which it was built, the agent's ABI, the libraries.
#pragma once

#include <string>

namespace uprobe::cli {

// The commit of the source tree at build time, or "unknown" (cmake/Commit.cmake writes it).
const char* commit();

// `agent`: the path of libuprobe.so, for LD_PRELOAD; empty: it is missing.
std::string version_text(const std::string& agent);

}  // namespace uprobe::cli
