// SPDX-License-Identifier: MIT
// Finds where the program reports changes of its libraries: a point that a session needs besides its probes.
#pragma once

#include "engine/arm/probe_set.h"
#include "engine/target/target.h"

namespace uprobe::control {

// Adds the point for a process stopped at the end of its execve. Dynamic programs: `_dl_debug_state` of the interpreter, which
// glibc and musl call after mapping the first libraries, before the constructors, and before and after every dlopen and
// dlclose. Static programs with IFUNC probes: `__libc_setup_tls`, which glibc calls right after the IFUNCs have chosen. Returns
// a note when a point is needed and none was found: libraries are not probed then.
Result<std::string> add_library_hook(target::Target& target, plan::FileCache& files, ProbeSet& probes);

}  // namespace uprobe::control
