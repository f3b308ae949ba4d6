// SPDX-License-Identifier: MIT
// Searches a process's memory for the descriptors (struct rseq_cs) of restartable sequences that no file shows.
#pragma once

#include <vector>

#include "engine/target/target.h"

namespace uprobe::control {

// [begin, end)
struct CodeRange {
  Addr begin, end;
};

// Where the kernel has sent a thread, and the thread's stack pointer there.
struct AbortPlace {
  Addr abort, stack;
};

// The sequences of all descriptors that name the abort handler. Searches the stack first, then the data of the handler's file,
// then private memory, up to a limit. Some of them may be out of date, and further ones may exist. The process is not trusted:
// each result lies in mapped code.
std::vector<CodeRange> find_sequences(target::Target& target, const std::vector<target::Mapping>& maps,
                                      const AbortPlace& place);

}  // namespace uprobe::control
