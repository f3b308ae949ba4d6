// SPDX-License-Identifier: MIT
// Sheds what a tool that was started by a traced program has inherited from that program.
#pragma once

namespace uprobe::cli {

// The program's own settings must not apply to the tool: ignored signals, CPUs, real-time class, limits. From now on SIGTERM
// and SIGHUP ask to end, and signals of a terminal are ignored.
void shed_inheritance();

bool is_asked_to_end();

}  // namespace uprobe::cli
