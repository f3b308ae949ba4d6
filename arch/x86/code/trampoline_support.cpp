// SPDX-License-Identifier: MIT
#include "arch/code/trampoline_support.h"

#include <algorithm>
#include <bit>

#include "arch/code/trampoline_filter.h"
#include "engine/shared/session_area.h"

namespace uprobe::arch {

using shared::Op;
using shared::Reg;

Where where_is(Reg reg) {
  switch (reg) {
    case Reg::r8:
      return {.slot = 8};
    case Reg::di:
      return {.slot = 16};
    case Reg::si:
      return {.slot = 24};
    case Reg::dx:
      return {.slot = 32};
    case Reg::cx:
      return {.slot = 40};
    case Reg::ax:
      return {.slot = 48};
    case Reg::bx:
      return {.live = true, .reg = rbx};
    case Reg::bp:
      return {.live = true, .reg = rbp};
    case Reg::r9:
      return {.live = true, .reg = r9};
    case Reg::r10:
      return {.live = true, .reg = r10};
    case Reg::r11:
      return {.live = true, .reg = r11};
    case Reg::r12:
      return {.live = true, .reg = r12};
    case Reg::r13:
      return {.live = true, .reg = r13};
    case Reg::r14:
      return {.live = true, .reg = r14};
    case Reg::r15:
      return {.live = true, .reg = r15};
    default:
      return {};
  }
}

// The arithmetic ones from the frame (ax of lahf and seto), the others as they are.
void load_flags(Assembler& a) {
  constexpr unsigned kEqual = 4;
  constexpr std::uint32_t kArithmetic = 0x8d5, kOverflow = 0x800;
  a.raw({0x9c});  // pushfq
  a.pop(rax);
  a.raw({0x25}), a.number(~kArithmetic, 4);   // and, %eax
  a.op(0x0a, 1, rax, Mem{rsp, 1});            // or 1(%rsp), %al
  a.op(0xf6, 4, 0, Mem{rsp, 0}), a.raw({1});  // testb $1, (%rsp)
  Label done;
  a.jump_if(kEqual, done);
  a.raw({0x0d}), a.number(kOverflow, 4);  // or, %eax
  a.bind(done);
}

// A byte that no process of the program can write, in a line that the session does not write often.
void leave_if_tool_is_gone(Assembler& a, Label& to) {
  constexpr unsigned kNotEqual = 5;
  constexpr std::int32_t kHighest = 3;
  a.op(0xf6, 4, 0, Mem{rsi, static_cast<std::int32_t>(offsetof(shared::AreaHeader, tool_life)) + kHighest});  // testb
  a.raw({shared::kLifeEnded >> 8 * kHighest});
  a.jump_if(kNotEqual, to);
}

namespace {

bool is_size(std::uint32_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }

// An argument's instruction that can be generated, as far as it alone can tell.
bool is_supported(const shared::Insn& insn) {
  switch (insn.op) {
    case Op::begin:
    case Op::load_constant:
    case Op::load_file_offset:
    case Op::load_thread:
      return true;
    case Op::load_register:
      return insn.size < shared::kRegCount;
    case Op::dereference:
    case Op::add:
      return fits(insn.immediate);
    case Op::store_string:
      return insn.count == 0 && fits(insn.immediate);
    case Op::shift_right:
      return insn.immediate < 64;
    case Op::store_value:
      return is_size(insn.size);
    case Op::store_memory:
      return is_size(insn.count) && fits(insn.immediate);
    default:
      return false;
  }
}

// Each argument begins with the source of its value, as the verifier wants it.
bool has_sources(std::span<const shared::Insn> program) {
  for (std::size_t i = 0; i + 1 < program.size(); ++i) {
    if (program[i].op != Op::begin) continue;
    const Op next = program[i + 1].op;
    const bool is_source = next == Op::load_register || next == Op::load_constant || next == Op::load_file_offset ||
                           next == Op::load_thread;
    if (!is_source) return false;
  }
  return !program.empty() && (program[0].op == Op::begin || program[0].op == Op::end);
}

}  // namespace

bool has_dynamic(std::span<const shared::Insn> program) {
  for (const shared::Insn& insn : program)
    if (insn.op == Op::store_string) return true;
  return false;
}

bool is_supported(const BodySpec& spec) {
  const FastRecord& f = *spec.fast;
  const auto end = std::ranges::find(f.program, Op::end, &shared::Insn::op);
  if (end == f.program.end() || !has_sources(f.program)) return false;
  if (!std::all_of(f.program.begin(), end, [](const shared::Insn& insn) { return is_supported(insn); })) return false;
  const std::size_t head_bytes = f.is_return ? sizeof(shared::ReturnHead) : sizeof(shared::PayloadHead);
  // A claimed ring's owner is named by the thread's number alone.
  if (spec.switches && (f.is_elsewhere || f.claimed_ring_count == 0 || f.claimed_ring_count > shared::kMaxRings))
    return false;
  return f.fixed_bytes >= head_bytes && f.fixed_bytes + kMostDynamic + 16 <= shared::kMaxPayload &&
         std::has_single_bit(f.ring_bytes) && f.ring_bytes <= shared::kMaxRingBytes &&
         f.ring_bytes >= shared::kMinRingBytes && f.cpu_ring_count != 0 && fits(f.data_offset) &&
         fits(f.ring_offset + shared::kMaxRings * sizeof(shared::Ring)) &&
         fits(f.events_offset + sizeof(shared::Event)) && fits(f.counts_offset + sizeof(shared::EventCounts)) &&
         f.program.size() <= 256 && fits(f.dropped_offset) && filter_place(f) != FilterPlace::agent;
}

}  // namespace uprobe::arch
