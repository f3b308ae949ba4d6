// SPDX-License-Identifier: MIT
// --control: the commands of a command line go to a running session.
#pragma once

#include "cli/call.h"

namespace uprobe::cli {

// Prints the session's replies, up to the first command that fails.
Outcome control(const Call& call);

}  // namespace uprobe::cli
