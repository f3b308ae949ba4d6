// SPDX-License-Identifier: MIT
// Looks for restartable sequences that no file shows: their descriptors (struct rseq_cs) are somewhere in a process's memory.
#pragma once

#include <vector>

#include "engine/target/target.h"

namespace uprobe::control {

// [begin, end)
struct CodeRange {
  Addr begin, end;
};

// Where the kernel has led a thread, and the thread's stack pointer there.
struct AbortPlace {
  Addr abort, stack;
};

// The sequences of all descriptors that name the abort handler: the stack is searched first, then the data of the handler's file, then
// private memory, up to a bound. Some may be out of date, and what is not found may exist. What the process says is not believed: each
// lies in code that is mapped.
std::vector<CodeRange> find_sequences(target::Target& target, const std::vector<target::Mapping>& maps,
                                      const AbortPlace& place);

}  // namespace uprobe::control
