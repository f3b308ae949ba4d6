// SPDX-License-Identifier: MIT
// Every system call that a traced process makes for the tool, with what is constant in its arguments: what a seccomp filter has to
// allow. The one list of them.
#pragma once

#include <span>
#include <string_view>

#include "engine/inject/seccomp_program.h"

namespace uprobe::control {

enum class NeededWhen {
  always,  // the agent answers in the program's stead (preload/calls.cpp), and a thread finds its return path if the tool dies
  attaching,  // the tool makes the process do it: while it is held, and later for libraries that are mapped and programs it becomes
  serving,  // by the agent itself afterwards, unless it has to be quiet (kBlockFiltered)
};

struct NeededCall {
  NeededWhen when;
  std::string_view name;
  FilteredCall call;
};

std::span<const NeededCall> agents_calls();

}  // namespace uprobe::control
