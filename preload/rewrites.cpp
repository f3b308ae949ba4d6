// SPDX-License-Identifier: MIT
// Breakpoints can stay where a program rewrites its code: the agent compares one byte with the original at each hit. A jump
// covers the bytes of several instructions, and a program that changes one of them makes the jump lead astray.
//
// In executable code the jump is replaced as engine/patch/ does it: a breakpoint, the bytes after it, the first byte, and a
// serializing instruction on every processor after each step (membarrier, uapi/linux/membarrier.h).
#include "preload/rewrites.h"

#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

constexpr u64 kRegisterSyncCore = 1 << 6, kSyncCore = 1 << 5;
using shared::kBreakpoint;

bool serialize() { return system_call(kSysMembarrier, kSyncCore, 0, 0, 0) == 0; }

volatile u8* text_of(const Point& point) { return reinterpret_cast<volatile u8*>(point.address); }

bool stands(const Point& point) {
  const shared::ArmedText armed = shared::armed_text(point);
  for (u32 i = 0; i < armed.length; ++i)
    if (text_of(point)[i] != armed.bytes[i]) return false;
  return true;
}

class Jumps {
 public:
  Jumps(ProcessBlock& block, u64 begin, u64 end) : block_(block), begin_(begin), end_(end) {}

  template <class Change>
  void each(const Change& change) {
    Point* points = at_offset<Point>(&block_, block_.point_offset);
    auto* undo = at_offset<shared::Undo>(&block_, block_.undo_offset);
    for (u32 i = 0; i < block_.point_count; ++i) {
      const bool inside = points[i].address >= begin_ && points[i].address + points[i].jump_bytes <= end_;
      if (inside && shared::is_armed_jump(points[i])) change(points[i], undo[i]);
    }
  }

 private:
  ProcessBlock& block_;
  u64 begin_, end_;
};

void write_tail(const Point& point, const shared::Undo& undo) {
  for (u32 i = 1; i < point.jump_bytes; ++i) text_of(point)[i] = undo.original[i];
}

void write_first(Point& point, shared::Undo& undo) {
  *text_of(point) = undo.original[0];
  undo.state = 0;
  __atomic_store_n(&point.state, static_cast<u32>(shared::PointState::disarmed), __ATOMIC_RELEASE);
}

}  // namespace

bool may_have_jumps(const ProcessBlock& block, u64 begin, u64 end) {
  for (const shared::JumpRange& range : block.jump_ranges)
    if (range.begin < end && begin < range.end) return true;
  return false;
}

void give_back_jumps(ProcessBlock& block, u64 begin, u64 end, bool executable) {
  Jumps jumps(block, begin, end);
  const bool may_call = (__atomic_load_n(&block.flags, __ATOMIC_RELAXED) & shared::kBlockFiltered) == 0;
  if (executable && (!may_call || system_call(kSysMembarrier, kRegisterSyncCore, 0, 0, 0) != 0)) return;
  jumps.each([](Point& point, shared::Undo&) {
    if (stands(point)) *text_of(point) = kBreakpoint;
  });
  if (executable && !serialize()) return;
  jumps.each([](Point& point, shared::Undo& undo) {
    if (*text_of(point) == kBreakpoint) write_tail(point, undo);
  });
  if (executable && !serialize()) return;
  jumps.each([](Point& point, shared::Undo& undo) {
    if (*text_of(point) == kBreakpoint) write_first(point, undo);
  });
  if (executable) static_cast<void>(serialize());
}

}  // namespace uprobe::agent
