// SPDX-License-Identifier: MIT
// Where the program tells that its libraries changed: the points of our own that a session needs besides its probes.
#pragma once

#include <sys/types.h>

#include "engine/arm/probe_set.h"

namespace uprobe::control {

// Adds the hook for a process stopped at the end of its execve. Dynamic programs: `_dl_debug_state` of the interpreter,
// which glibc and musl call after the libraries of the start are mapped and before their constructors run, and around every
// dlopen and dlclose. Static programs with IFUNC probes: `__libc_setup_tls`, which glibc calls right after the IFUNCs have
// chosen. Returns a note when there should be a hook and none was found: libraries then go unprobed.
Result<std::string> add_library_hook(pid_t pid, plan::FileCache& files, ProbeSet& probes);

}  // namespace uprobe::control
