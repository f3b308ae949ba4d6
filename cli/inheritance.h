// SPDX-License-Identifier: MIT
// What a tool that a traced program has started has of that program, and must not have.
#pragma once

namespace uprobe::cli {

// The program's own settings are not for us: what it ignores, its CPUs and its real-time class, its limits. SIGTERM and SIGHUP ask
// to end from now on, signals of a terminal are ignored.
void shed_inheritance();

bool is_asked_to_end();

}  // namespace uprobe::cli
