// SPDX-License-Identifier: MIT
// The parts of a body that find its ring, and that claim one, where the stack is switched and no thread has rseq. Internal to this folder.
#pragma once

#include <initializer_list>

#include "arch/code/trampoline_record.h"

namespace uprobe::arch {

// Appends what loads the place of a ring into rdi. ecx: its index among those that begin at `first` in the area, to which rsi points.
void load_ring(Assembler& a, std::uint32_t first);

// From rsp, above the application's stack pointer.
inline constexpr std::int32_t kSwitchedCpu = sizeof(shared::TrampolineFrame) + 8;

// Appends the claim of the CPU's claimed ring, as preload/ring_claim.cpp makes it; a ring that another thread has is the agent's
// affair. rdx = the block, rsi = the area; then rdi = the ring, ecx = its index among those that are claimed, and kSwitchedCpu(%rsp) the
// CPU. Uses rax and r8. The labels `outs` are bound to the
// way out for a thread that has the ring: it is given back, and the agent records.
void claim_ring(const FastRecord& fast, Assembler& a, BodyLabels& labels, std::initializer_list<Label*> outs);

}  // namespace uprobe::arch
