// SPDX-License-Identifier: MIT
// Taking the probes out of a process that runs: disarm_waiting() and disarm_running() (processes.h) for any target.
#pragma once

#include <span>

#include "engine/patch/serialize.h"
#include "engine/process/block.h"
#include "engine/target/target.h"

namespace uprobe::control {

// The text back to the original wherever it is ours, and the tables in step. The agent's own points last: while there are
// probes they keep SIGTRAP deliverable, and lead a handler that comes back into a jump's window to the copy. An Error when
// some probe had to stay; then all of these do.
Status take_out(target::Target& target, Block& block, Serializer& serializer);

// Some probes alone, of a session that goes on.
Status take_out(target::Target& target, Block& block, Serializer& serializer, std::span<const std::uint32_t> points);

}  // namespace uprobe::control
