// SPDX-License-Identifier: MIT
#include "arch/code/trampoline_claim.h"

#include <bit>

#include "engine/shared/process_block.h"
#include "engine/shared/session_area.h"

namespace uprobe::arch {
namespace {

using shared::ProcessBlock;
using shared::Ring;

constexpr unsigned kIsBelow = 2, kIsNotBelow = 3, kIsNotEqual = 5;
// Of the GDT segment whose limit has the CPU's number (arch/entry/cpu.h).
constexpr std::uint32_t kCpuSelector = 15 * 8 + 3, kCpuMask = 0xfff;

// ecx = the CPU.
void load_cpu(const FastRecord& fast, Assembler& a) {
  if (fast.has_cpu_number) {
    a.raw({0xf3, 0x0f, 0xc7, 0xf9});  // rdpid %rcx
  } else {
    a.constant(rcx, kCpuSelector);
    a.raw({0x0f, 0x03, 0xc9});  // lsl %ecx, %ecx
  }
  a.raw({0x81, 0xe1}), a.number(kCpuMask, 4);  // and, %ecx
}

}  // namespace

void load_ring(Assembler& a, std::uint32_t first) {
  a.move(rdi, rcx, 4);
  a.raw({0xc1, 0xe7, std::countr_zero(sizeof(Ring)) & 0xffu});  // shl, %edi
  a.raw({0x48, 0x8d, 0xbc, 0x3e}), a.number(first, 4);          // lea first(%rsi,%rdi), %rdi
}

void claim_ring(const FastRecord& fast, Assembler& a, BodyLabels& labels, std::initializer_list<Label*> outs) {
  Label begin;
  a.jump(begin);
  for (Label* out : outs) a.bind(*out);
  a.bind(labels.unclaim);
  a.store_number({rdi, offsetof(Ring, owner)}, 0);
  a.jump(labels.faulted);
  a.bind(begin);
  load_cpu(fast, a);
  a.store({rsp, kSwitchedCpu}, rcx, 4);
  Label found;
  a.op(0x81, 4, 7, rcx), a.number(fast.claimed_ring_count, 4);  // cmp
  a.jump_if(kIsBelow, found);
  a.op(0x81, 4, 5, rcx), a.number(fast.claimed_ring_count, 4);  // sub: there are half as many as CPUs
  a.op(0x81, 4, 7, rcx), a.number(fast.claimed_ring_count, 4);
  a.jump_if(kIsNotBelow, labels.slow);
  a.bind(found);
  const std::uint32_t first = fast.ring_offset + fast.cpu_ring_count * static_cast<std::uint32_t>(sizeof(Ring));
  load_ring(a, first);
  a.load4(r8, {rdx, offsetof(ProcessBlock, pid)});
  a.raw({0x31, 0xc0, 0xf0});                             // xor %eax, %eax; lock
  a.op(0x0fb1, 4, r8, Mem{rdi, offsetof(Ring, owner)});  // cmpxchg
  a.bind(labels.claimed);
  a.jump_if(kIsNotEqual, labels.slow);
}

}  // namespace uprobe::arch
