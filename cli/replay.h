// SPDX-License-Identifier: MIT
// --replay: prints a recording.
#pragma once

#include "cli/call.h"

namespace uprobe::cli {

// Exit code 1 for a file that is no whole recording.
Outcome replay(const Call& call);

}  // namespace uprobe::cli
