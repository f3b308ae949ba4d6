// SPDX-License-Identifier: MIT
// What ld.so's call of the agent leaves to find: the environment, and where the agent's own file is.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// The variables that the program was started with. glibc hands them to initialisers, musl hands over nothing: then the
// arguments are whatever was in the registers. Null when they cannot be found.
char** find_environment(i64 argc, char** argv, char** envp);

// "NAME=" among them: the value, or null. `name` ends with the '='.
const char* variable(char** environment, const char* name);

// The first variable that begins with UPROBE_ and is none of the agent's or its helper's ("NAME=VALUE"), or null.
const char* unknown_variable(char** environment);

// Whether the program runs with more rights than whoever wrote these variables (AT_SECURE).
bool is_secure(char** environment);

// The path of the library that this code is in, as ld.so opened it. False when it is unknown or longer than `bytes`.
bool own_path(char* path, u32 bytes);

// Whether a seccomp filter is in force; true when that cannot be told.
bool is_filtered();

// Whether somebody traces this process who may keep the SIGTRAP of our breakpoints to himself. strace, known by its name, hands
// every signal on.
bool is_debugged();

// Compares as many characters as `start` has.
bool starts_with(const char* text, const char* start);
u32 length_of(const char* text);

}  // namespace uprobe::agent
