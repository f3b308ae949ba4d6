// SPDX-License-Identifier: MIT
// Takes the probes out of a running process: disarm_waiting() and disarm_running() (processes.h) for any target.
#pragma once

#include <span>

#include "engine/patch/serialize.h"
#include "engine/process/block.h"
#include "engine/target/target.h"

namespace uprobe::control {

// Restores the original text at all points and keeps the tables in step. Internal points come last: as long as there are probes
// they keep SIGTRAP deliverable, and lead a signal handler that returns into a jump's window to the copy. An Error when some
// probe had to stay; then all internal points stay.
Status take_out(target::Target& target, Block& block, Serializer& serializer);

// Whether functions of a running process return by stubs, or may have done so: then the internal points have to stay for good.
bool has_stubs(pid_t pid, Addr block);

// Takes out some probes of a session that goes on.
Status take_out(target::Target& target, Block& block, Serializer& serializer, std::span<const std::uint32_t> points);

}  // namespace uprobe::control
