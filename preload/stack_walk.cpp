// SPDX-License-Identifier: MIT
#include "preload/stack_walk.h"

#include "preload/stubs.h"

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
