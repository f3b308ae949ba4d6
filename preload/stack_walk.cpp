// SPDX-License-Identifier: MIT
#include "preload/stack_walk.h"

#include "arch/shared/unwinding.h"
#include "preload/stubs.h"
#include "preload/unwind_rules.h"

namespace uprobe::agent {
namespace {

// A link that would make a larger frame is a register that holds something else.
constexpr u64 kMostFrameBytes = 1 << 20;
// Below the stack pointer (System V ABI): a function that is about to return has just taken its saved words from there.
constexpr u64 kRedZone = 128;

// A stack that libc has made ends at the thread's control block: no frame is above it. 0: not known.
UPROBE_IN_SECTION u64 control_block(const Hit& hit) {
  u64 low = 0, high = 0;
  if (hit.block->tid_offset == 0 || !uprobe_peek_thread4(0, &low) || !uprobe_peek_thread4(4, &high)) return 0;
  return high << 32 | low;
}

// Returns the number of bytes copied. A load that faults costs two signals in a section, so the known ends are respected.
UPROBE_IN_SECTION u32 copy_stack(const Hit& hit, u64 from, u8* to, u32 limit) {
  const u64 sp = (*hit.registers)[shared::Reg::sp];
  const auto end_at = [&](u64 end) __attribute__((always_inline)) {
    if (end > sp && end - from < limit) limit = static_cast<u32>(end - from) & ~7u;
  };
  end_at(hit.block->stack_end);
  end_at(control_block(hit));
  auto* const words = reinterpret_cast<u64*>(to);
  const u64 count = hit.may_fault ? uprobe_peek_words(from, words, limit / 8) : 0;
  if ((hit.block->flags & shared::kBlockHasStubs) != 0)
    for (u64 i = 0; i < count; ++i) words[i] = past_stubs(words[i]);
  return static_cast<u32>(8 * count);
}

}  // namespace

UPROBE_IN_SECTION u32 walk_stack(const Hit& hit, const Event& event, u64* frames, u32 most, u64* places) {
  const Reader reader{hit.may_fault};
  const Registers& registers = *hit.registers;
  u64 low = registers[shared::Reg::sp], link = registers[shared::kFrameRegister], next = 0;
  u32 count = 0;
  const auto add = [&](u64 address, u64 place) __attribute__((always_inline)) {
    if (places != nullptr) places[count] = place;
    frames[count++] = past_stubs(address);
  };
  add(registers[shared::Reg::ip], 0);
  if ((event.flags & shared::kEventAtEntry) != 0 && count < most && reader.load8(low, next) && next != 0)
    add(next, low);
  while (count < most && link >= low && link - low < kMostFrameBytes && link % 8 == 0) {
    if (!reader.load8(link + 8, next) || next == 0) break;
    add(next, link + 8);
    low = link + 8;
    if (!reader.load8(link, link)) break;
  }
  return count;
}

namespace {

// A frame of an alloca may be as large as a stack.
constexpr u64 kMostDescribedBytes = u64{64} << 20;

// The registers by which a frame's caller is found. `is_exact`: the code at `ip` is what runs next, and not what follows a call.
struct Step {
  u64 ip, sp, link;
  bool is_exact = true;
};

// By the chain of frame pointers. A function that has just been entered has no link of its own yet. In code that uses the register for
// something else a word of data may be taken for a return address: where no memory is, there is no code.
UPROBE_IN_SECTION void follow_link(bool is_at_entry, Step& step) {
  const u64 link = step.link;
  if (is_at_entry) {
    step.ip = uprobe_peek_word(step.sp);
    step.sp += 8;
  } else if (link >= step.sp && link - step.sp < kMostFrameBytes && link % 8 == 0) {
    const u64 address = uprobe_peek_word(link + 8);
    step.ip = address != 0 && uprobe_peek_word(address) != 0 ? address : 0;
    step.sp = link + 16;
    step.link = uprobe_peek_word(link);
  } else {
    step.ip = 0;
  }
}

UPROBE_IN_SECTION void leave_signal(Step& step) {
  const u64 frame = step.sp;
  step.ip = uprobe_peek_word(frame + shared::kSignalCodeAt);
  step.sp = uprobe_peek_word(frame + shared::kSignalStackPointerAt);
  step.link = uprobe_peek_word(frame + shared::kSignalFramePointerAt);
  step.is_exact = true;
}

UPROBE_IN_SECTION void follow_rule(const UnwindRule& rule, Step& step) {
  const u64 link_at = static_cast<u64>(i64{rule.link_at});
  u64 begin = (rule.base == FrameBase::stack ? step.sp : step.link) + static_cast<u64>(i64{rule.distance});
  if (rule.base == FrameBase::word) begin = uprobe_peek_word(begin);
  const bool is_above = begin > step.sp && begin - step.sp <= kMostDescribedBytes && begin % 8 == 0;
  step.ip = is_above ? uprobe_peek_word(begin - 8) : 0;
  if (rule.link != CallersLink::kept)
    step.link = uprobe_peek_word((rule.link == CallersLink::from_link ? step.link : begin) + link_at);
  step.sp = begin;
}

// `ip` becomes 0 where there is no caller.
UPROBE_IN_SECTION void go_to_caller(const Hit& hit, bool is_at_entry, Step& step) {
  const UnwindRule rule = unwind_rule(*hit.block, step.is_exact ? step.ip : step.ip - 1);
  step.is_exact = false;
  if (rule.base == FrameBase::stack || rule.base == FrameBase::frame || rule.base == FrameBase::word)
    follow_rule(rule, step);
  else if (rule.base == FrameBase::unknown)
    follow_link(is_at_entry, step);
  else if (rule.base == FrameBase::signal)
    leave_signal(step);
  else
    step.ip = 0;
}

}  // namespace

UPROBE_IN_SECTION u32 unwind_stack(const Hit& hit, const Event& event, u64* frames, u32 most) {
  if (!hit.may_fault || hit.block->unwind_offset == 0) return walk_stack(hit, event, frames, most);
  const Registers& registers = *hit.registers;
  Step step{registers[shared::Reg::ip], registers[shared::Reg::sp], registers[shared::kFrameRegister]};
  const bool is_at_entry = (event.flags & shared::kEventAtEntry) != 0;
  u32 count = 0;
  while (count < most && step.ip != 0) {
    frames[count++] = step.ip = past_stubs(step.ip);
    go_to_caller(hit, is_at_entry && count == 1, step);
  }
  return count;
}

UPROBE_IN_SECTION u32 record_stack(const Hit& hit, const Event& event, u8* at, u32 copy_limit) {
  auto& head = *reinterpret_cast<shared::StackHead*>(at);
  const Registers& registers = *hit.registers;
  for (u32 i = 0; i < shared::kWalkRegisters; ++i) *const_cast<volatile u64*>(&head.registers[i]) = registers.value[i];
  auto* const frames = reinterpret_cast<u64*>(at + sizeof head);
  auto* const places = frames + shared::kMaxFrames;
  const u32 count = walk_stack(hit, event, frames, shared::kMaxFrames, places);
  for (u32 i = 0; i < count; ++i) *const_cast<volatile u64*>(&frames[count + i]) = places[i];

  u8* const copy = reinterpret_cast<u8*>(frames + 2 * count);
  const u64 sp = registers[shared::Reg::sp] & ~u64{7};
  u64 from = sp - kRedZone;
  u32 bytes = copy_stack(hit, from, copy, copy_limit);
  if (bytes == 0) bytes = copy_stack(hit, from = sp, copy, copy_limit);
  head.frames = count, head.copy_bytes = bytes, head.copy_begin = from;
  return static_cast<u32>(copy + bytes - at);
}

}  // namespace uprobe::agent
