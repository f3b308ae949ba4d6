// SPDX-License-Identifier: MIT
// The location of unwind information for mapped code: the agent replaces no return address in code that has none.
#pragma once

#include <vector>

#include "engine/shared/process_block.h"
#include "engine/target/target.h"

namespace uprobe::control {

// The code of a file's mapping, as the agent needs it; `maps`: all of the process's. unwind_header is 0 where the file's header
// is not mapped before the code, cannot be read, or has no PT_GNU_EH_FRAME.
shared::CodeFile code_file_of(target::Target& target, const std::vector<target::Mapping>& maps,
                              const target::Mapping& code);

}  // namespace uprobe::control
