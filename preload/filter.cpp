// SPDX-License-Identifier: MIT
// Decides whether a built record is wanted: runs the tests of engine/shared/filter.h over the payload, in a ring's free space.
// A dropped record is never published and leaves only a count.
#include "preload/ring.h"
#include "preload/system_call.h"

namespace uprobe::agent {

using shared::Verdict;

// Not inlined: a system call takes registers.
[[gnu::noinline]] UPROBE_IN_SECTION bool fetch_name(const RecordBuilder& builder, u8* name) {
  return !builder.in_section && may_fetch_name(builder) && get_task_name(name);
}

// The tool has told the number of the first thread; the agent does not know those of the others.
UPROBE_IN_SECTION u32 number_elsewhere(const Hit& hit) {
  const shared::TaskNumber task = shared::task_of(hit.block->process_word, hit.block->thread_word);
  return hit.tid == hit.block->own_process && !task.of_child ? task.process : 0;
}

// Not inlined: only an event with tests needs the stack for it.
[[gnu::noinline]] UPROBE_IN_SECTION Verdict verdict_of(const RecordBuilder& builder, const Payload& payload, u32 first,
                                                       u32 count) {
  const AreaHeader* const area = builder.area;
  if (u64{first} + count > area->test_count) return Verdict::pass;
  const shared::Filter filter{at_offset<shared::Test>(area, area->test_offset) + first, count,
                              at_offset<u8>(area, area->text_offset), area->text_bytes};
  const bool is_elsewhere = shared::is_elsewhere(task_words(*builder.hit->block));
  shared::FilterInput input{payload.at, payload.used, builder.cpu, nullptr, is_elsewhere, 0};
  if (is_elsewhere) input.pid = number_elsewhere(*builder.hit);
  u8 name[shared::kNameBytes] = {};
  for (;; input.name = name) {
    const Verdict verdict = shared::run_filter(filter, input);
    if (verdict != Verdict::unknown || !fetch_name(builder, name)) return verdict;
  }
}

UPROBE_IN_SECTION Built judge(const RecordBuilder& builder, Payload& payload) {
  const Event& event = *builder.event;
  const bool is_missing = (payload.record_flags & shared::kRecordNoEntry) != 0;
  if (is_missing && (event.flags & shared::kEventAsksEntry) != 0) return Built::dropped;
  const Verdict verdict = verdict_of(builder, payload, event.first_test, event.test_count);
  if (verdict == Verdict::unknown && builder.in_section && may_fetch_name(builder)) return Built::wants_call;
  if (verdict == Verdict::unknown || verdict == Verdict::later) payload.record_flags |= shared::kRecordJudgeLater;
  return verdict == Verdict::drop ? Built::dropped : Built::ok;
}

// In the second half of the rows: the first half is written without lock. The row of any CPU is right, wherever the thread has
// moved since.
void count_dropped(AreaHeader* area, u32 event_index, u32 cpu) {
  if (area->dropped_rows == 0) return;
  const u64 row = area->dropped_offset + u64{area->dropped_rows + cpu % area->dropped_rows} * area->dropped_stride;
  count(at_offset<u64>(area, row)[event_index]);
}

}  // namespace uprobe::agent
