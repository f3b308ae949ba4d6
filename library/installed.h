// SPDX-License-Identifier: MIT
// Where the agent was installed with the library.
#pragma once

#include <string>

#include "library/uprobe/session.h"

namespace libuprobe {

// The agent that was installed with the header of this path (PREFIX/include/uprobe/session.h). Empty: there is none, or the path is
// not absolute, and would mean another file in each working directory.
std::string installed_agent(const std::string& header);

// With that agent where none is given.
Options with_agent(Options options);

}  // namespace libuprobe
