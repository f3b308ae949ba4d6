// SPDX-License-Identifier: MIT
// Writes to the text of a stopped process of which all are made, or none, whatever ends the tool in between.
//
// The kernel lets go of a dead tracer's tracees at once, and they run on whichever writes have been made. So before the first write every
// thread is given a way home that leads through the list of all writes (arch/code/finishing_code.h): the threads that run on make them
// all before any of them executes an instruction of the program's own. One word of the list, which is written last, says that it counts.
// For that time the text is writable; no thread runs in it.
//
//   list and code are mapped; registers of all threads; mprotect; THE WORD; the writes; the word; mprotect; registers; munmap
#pragma once

#include <span>

#include "engine/target/stopped_process.h"

namespace uprobe::target {

// Code::refused where the process may not have this done: it has a seccomp filter, locked memory or a mapping that is not private, or
// does not allow text to be writable. Nothing is written then.
Status write_all_or_none(StoppedProcess& process, std::span<const MemoryPiece> pieces);

}  // namespace uprobe::target
