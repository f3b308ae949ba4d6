// Whether a record that has been built is wanted: engine/shared/filter.h over the payload, in a ring's free space. What is
// dropped is never published and leaves nothing but a count.
#include "preload/ring.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

using shared::Verdict;

// As $comm (interpret.cpp): not inside the section, and not where a seccomp filter may be in force.
enum class Name : u8 { known, later, wants_call };

UPROBE_IN_SECTION Name fetch_name(const Draft& draft, u8 (&name)[shared::kNameBytes]) {
  if ((draft.hit->block->flags & shared::kBlockFiltered) != 0) return Name::later;
  if (draft.in_section) return Name::wants_call;
  return get_task_name(name) ? Name::known : Name::later;
}

}  // namespace

// Not part of its caller: only who has a filter needs the stack for it.
[[gnu::noinline]] UPROBE_IN_SECTION Built judge(const Draft& draft, Payload& payload) {
  const AreaHeader* const area = draft.area;
  const Event& event = *draft.event;
  const u32 first = event.first_test, count = event.test_count;
  if (u64{first} + count > area->test_count) return Built::ok;
  const bool is_missing = (payload.record_flags & shared::kRecordNoEntry) != 0;
  if (is_missing && (event.flags & shared::kEventAsksEntry) != 0) return Built::dropped;
  u8 name[shared::kNameBytes] = {};
  const Name has_name = (event.flags & shared::kEventAsksName) != 0 ? fetch_name(draft, name) : Name::known;
  if (has_name == Name::wants_call) return Built::wants_call;
  const shared::Filter filter{at_offset<shared::Test>(area, area->test_offset) + first, count,
                              at_offset<u8>(area, area->text_offset), area->text_bytes};
  const Verdict verdict =
      shared::run_filter(filter, {payload.at, payload.used, draft.cpu, has_name == Name::known ? name : nullptr});
  if (verdict == Verdict::unknown) payload.record_flags |= shared::kRecordJudgeLater;
  return verdict == Verdict::drop ? Built::dropped : Built::ok;
}

// In the second half of the rows: those of the first are written without lock. Which one is right wherever the thread has moved
// meanwhile.
void count_dropped(AreaHeader* area, u32 event_index, u32 cpu) {
  if (area->dropped_rows == 0) return;
  const u64 row = area->dropped_offset + u64{area->dropped_rows + cpu % area->dropped_rows} * area->dropped_stride;
  count(at_offset<u64>(area, row)[event_index]);
}

}  // namespace uprobe::agent
