// A handler of the application that was shown an instruction inside a jump's window, because that faulted, may come back to
// it, or to the next one: the program's text has the middle of a jump there.
#include "preload/windows.h"

namespace uprobe::agent {
namespace {

u64 copy_of(const Point& point, u32 place) {
  const auto* marks = reinterpret_cast<const shared::Mark*>(shared::marks_of(point));
  for (u32 i = 0; i < point.mark_count; ++i)
    if (marks[i].place == static_cast<i32>(place) && marks[i].pushed == 0) return point.copy + marks[i].offset;
  return 0;
}

}  // namespace

u64 place_to_go_on(const ProcessBlock& block, u64 address) {
  for (u32 behind = 1; behind < shared::kJumpBytes; ++behind) {
    const Point* point = find_point(block, address - behind);
    if (point == nullptr || behind >= point->jump_bytes || behind >= point->code_bytes) continue;
    if (point->state != static_cast<u32>(shared::PointState::armed)) continue;
    const u64 in_copy = copy_of(*point, behind);
    if (in_copy != 0) return in_copy;
  }
  return address;
}

}  // namespace uprobe::agent
