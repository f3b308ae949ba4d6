// SPDX-License-Identifier: MIT
// Whether a record that has been built is wanted: engine/shared/filter.h over the payload, in a ring's free space. What is
// dropped is never published and leaves nothing but a count.
#include "preload/ring.h"
#include "preload/system_call.h"

namespace uprobe::agent {

using shared::Verdict;

// Not part of its callers: a system call takes registers.
[[gnu::noinline]] UPROBE_IN_SECTION bool fetch_name(const RecordBuilder& builder, u8* name) {
  return !builder.in_section && may_fetch_name(builder) && get_task_name(name);
}

// Of the first thread the tool has said it; of the others nobody here knows.
UPROBE_IN_SECTION u32 number_elsewhere(const Hit& hit) {
  const shared::TaskNumber task = shared::task_of(hit.block->process_word, hit.block->thread_word);
  return hit.tid == hit.block->own_process && !task.of_child ? task.process : 0;
}

// Not part of its callers: only who has tests needs the stack for it.
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

// In the second half of the rows: those of the first are written without lock. Which one is right wherever the thread has moved
// meanwhile.
void count_dropped(AreaHeader* area, u32 event_index, u32 cpu) {
  if (area->dropped_rows == 0) return;
  const u64 row = area->dropped_offset + u64{area->dropped_rows + cpu % area->dropped_rows} * area->dropped_stride;
  count(at_offset<u64>(area, row)[event_index]);
}

}  // namespace uprobe::agent
