// SPDX-License-Identifier: MIT
// Whether a function can be left at its first instruction, as if it had returned.
#pragma once

#include <string>

#include "engine/flow/flow.h"
#include "engine/plan/resolve.h"

namespace uprobe::plan {

// By a symbol or the unwind information.
bool begins_function(const elf::ElfFile& file, std::uint64_t address);

// Why not, as reads on from the place: "is not the first instruction of a function". Empty: the stack pointer points to the return
// address there, and nothing has been saved.
std::string reason_against_override(const FileFlow& flow, const Site& site);

}  // namespace uprobe::plan
