#include "preload/stack_walk.h"

namespace uprobe::agent {
namespace {

// A frame that is larger than this is a register that holds something else.
constexpr u64 kMostFrameBytes = 1 << 20;

}  // namespace

UPROBE_IN_SECTION u32 walk_stack(const Hit& hit, const Event& event, u64* frames, u32 most) {
  const Reader reader{hit.may_fault};
  const Registers& registers = *hit.registers;
  u64 low = registers[shared::Reg::sp], link = registers[shared::Reg::bp], next = 0;
  u32 count = 0;
  frames[count++] = registers[shared::Reg::ip];
  if ((event.flags & shared::kEventAtEntry) != 0 && count < most && reader.load8(low, next) && next != 0)
    frames[count++] = next;
  while (count < most && link >= low && link - low < kMostFrameBytes && link % 8 == 0) {
    if (!reader.load8(link + 8, next) || next == 0) break;
    frames[count++] = next;
    low = link + 8;
    if (!reader.load8(link, link)) break;
  }
  return count;
}

}  // namespace uprobe::agent
