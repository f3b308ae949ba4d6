// SPDX-License-Identifier: MIT
// Where the unwind information of mapped code is: the agent replaces no return address of code that has none.
#pragma once

#include <vector>

#include "engine/shared/process_block.h"
#include "engine/target/target.h"

namespace uprobe::control {

// The code of a mapping of a file, as the agent wants to know it; `maps` are all of the process's. unwind_header is 0 where the
// file's header is not mapped in front of the code, cannot be read, or names no PT_GNU_EH_FRAME.
shared::CodeFile code_file_of(target::Target& target, const std::vector<target::Mapping>& maps,
                              const target::Mapping& code);

}  // namespace uprobe::control
