// SPDX-License-Identifier: MIT
// Where ld.so enters and leaves a preloaded agent (DT_INIT, DT_FINI). See start.cpp.
#pragma once

#include "preload/agent.h"

extern "C" {
__attribute__((visibility("hidden"), used)) void uprobe_init(uprobe::agent::i64 argc, char** argv, char** envp);
__attribute__((visibility("hidden"), used)) void uprobe_fini();
}
