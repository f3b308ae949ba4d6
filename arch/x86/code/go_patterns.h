// SPDX-License-Identifier: MIT
// Code as Go's compiler and runtime have it, by its bytes.
#pragma once

#include "arch/code/relocate.h"

namespace uprobe::arch {

// Where the jump leads with which a program of Go without a C library begins (_rt0_amd64_linux of rt0_linux_amd64.s); 0: it does
// not begin so.
Addr go_entry_target(Bytes code, Addr at);
// Whether the code is what is there: the first instructions of _rt0_amd64 (asm_amd64.s), which take argc and argv from the stack.
bool is_go_entry(Bytes code);

// Whether the code begins with the check of the stack's bound and its branch (cmd/internal/obj/x86/obj6.go, stacksplit). The runtime
// never keeps the address between the two: a goroutine that is preempted there is not led away (PCDATA_UnsafePoint).
bool is_go_stack_check(Bytes code);

// Whether one whole instruction, one of those that follow others in a window, never faults in Go: it has no operand in memory, or
// one on the stack, which is always there; and it makes no call, whose address deferred functions come back to.
bool is_safe_in_go(Bytes insn);

}  // namespace uprobe::arch
