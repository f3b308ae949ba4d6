// SPDX-License-Identifier: MIT
// The environment, and the path of the agent's own file, which ld.so does not pass to the agent.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// The variables that the program was started with. glibc passes them to initialisers; musl passes nothing, and the arguments
// are whatever the registers held. Null if they cannot be found.
char** find_environment(i64 argc, char** argv, char** envp);

// "NAME=" among them: the value, or null. `name` ends with the '='.
const char* variable(char** environment, const char* name);

// The first variable that begins with UPROBE_ and is not one that the agent or its helper reads ("NAME=VALUE"), or null.
const char* unknown_variable(char** environment);

// Whether the program runs with more rights than the user who set these variables (AT_SECURE).
bool is_secure(char** environment);

// The path of the library that this code is in, as ld.so opened it. False when it is unknown or longer than `bytes`.
bool own_path(char* path, u32 bytes);

// Whether a seccomp filter is in force; true if that is unknown.
bool is_filtered();

// Whether a process traces this one that may keep the SIGTRAP of the agent's breakpoints for itself. strace, known by its name,
// passes every signal on.
bool is_debugged();

// Compares as many characters as `start` has.
bool starts_with(const char* text, const char* start);
u32 length_of(const char* text);

}  // namespace uprobe::agent
