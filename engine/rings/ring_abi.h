// SPDX-License-Identifier: MIT
// Holds the public header of the rings (library/uprobe/ring.h) to the layout that agents and the tool use. What differs does not
// compile. A change there that a reader would notice raises UPROBE_RING_VERSION.
#pragma once

#include <cstddef>

#include "engine/shared/session_area.h"
#include "engine/shared/task_name.h"
#include "library/uprobe/ring.h"

namespace uprobe::rings {

template <class Public, class Shared>
inline constexpr bool kSameSize = sizeof(Public) == sizeof(Shared) && alignof(Public) <= alignof(Shared);

static_assert(kSameSize<uprobe_ring, shared::Ring>);
static_assert(offsetof(uprobe_ring, commit) == offsetof(shared::Ring, commit));
static_assert(offsetof(uprobe_ring, stamp) == offsetof(shared::Ring, stamp));
static_assert(offsetof(uprobe_ring, owner) == offsetof(shared::Ring, owner));
static_assert(offsetof(uprobe_ring, begun) == offsetof(shared::Ring, begun));
static_assert(offsetof(uprobe_ring, lost) == offsetof(shared::Ring, lost));
static_assert(offsetof(uprobe_ring, tail) == offsetof(shared::Ring, tail) && offsetof(uprobe_ring, tail) == 128);

static_assert(kSameSize<uprobe_ring_record, shared::RecordHead>);
static_assert(offsetof(uprobe_ring_record, length) == offsetof(shared::RecordHead, length));
static_assert(offsetof(uprobe_ring_record, number) == offsetof(shared::RecordHead, number));
static_assert(offsetof(uprobe_ring_record, tsc) == offsetof(shared::RecordHead, tsc));
static_assert(offsetof(uprobe_ring_record, payload_bytes) == offsetof(shared::RecordHead, payload_bytes));
static_assert(offsetof(uprobe_ring_record, cpu) == offsetof(shared::RecordHead, cpu));
static_assert(offsetof(uprobe_ring_record, flags) == offsetof(shared::RecordHead, flags));

static_assert(UPROBE_RING_NO_CLOCK == shared::kRecordNoClock && UPROBE_RING_COMM_LATER == shared::kRecordCommLater);
static_assert(UPROBE_RING_NO_ENTRY == shared::kRecordNoEntry && UPROBE_RING_STACK == shared::kRecordStack);
static_assert(UPROBE_RING_JUDGE_LATER == shared::kRecordJudgeLater);
static_assert(UPROBE_RING_TASK_NAME == shared::kRecordTaskName && shared::kTaskBegins == 1 && shared::kNameBytes == 16);

static_assert(kSameSize<uprobe_ring_payload, shared::PayloadHead>);
static_assert(offsetof(uprobe_ring_payload, type) == offsetof(shared::PayloadHead, type));
static_assert(offsetof(uprobe_ring_payload, flags) == offsetof(shared::PayloadHead, flags));
static_assert(offsetof(uprobe_ring_payload, preempt_count) == offsetof(shared::PayloadHead, preempt_count));
static_assert(offsetof(uprobe_ring_payload, pid) == offsetof(shared::PayloadHead, pid));
static_assert(offsetof(uprobe_ring_payload, ip) == offsetof(shared::PayloadHead, ip));
static_assert(shared::kNumberBits == 22 && shared::kOfChild == 1u << 31);  // the words of another PID namespace

static_assert(UPROBE_RING_STACK_BYTES == sizeof(shared::StackHead));
static_assert(offsetof(uprobe_ring_stack, frames) == offsetof(shared::StackHead, frames));
static_assert(offsetof(uprobe_ring_stack, copy_bytes) == offsetof(shared::StackHead, copy_bytes));
static_assert(offsetof(uprobe_ring_stack, copy_begin) == offsetof(shared::StackHead, copy_begin));

static_assert(kSameSize<uprobe_ring_counts, shared::EventCounts>);
static_assert(offsetof(uprobe_ring_counts, lost_full) == offsetof(shared::EventCounts, lost_full));
static_assert(offsetof(uprobe_ring_counts, lost_too_big) == offsetof(shared::EventCounts, lost_too_big));
static_assert(offsetof(uprobe_ring_counts, lost_busy) == offsetof(shared::EventCounts, lost_busy));
static_assert(offsetof(uprobe_ring_counts, missed) == offsetof(shared::EventCounts, missed));
static_assert(offsetof(uprobe_ring_counts, unavailable) == offsetof(shared::EventCounts, unavailable));
static_assert(offsetof(uprobe_ring_counts, disabled) == offsetof(shared::EventCounts, disabled));
static_assert(offsetof(uprobe_ring_counts, entries) == offsetof(shared::EventCounts, entries));
static_assert(offsetof(uprobe_ring_counts, self_unknown) == offsetof(shared::EventCounts, self_unknown));

// The most bytes that a writer can change after `commit` before it publishes them, in a ring of that size with that limit of
// payloads: the head, the payload and the stack with their limits (preload/record.cpp).
constexpr std::uint32_t record_most(std::uint64_t ring_bytes, std::uint32_t payload_limit) {
  const std::uint32_t stack = shared::kMaxStack - shared::kMaxStackCopy + shared::stack_copy_limit(ring_bytes);
  return (static_cast<std::uint32_t>(sizeof(shared::RecordHead)) + payload_limit + 7) / 8 * 8 + stack;
}
static_assert(record_most(shared::kMinRingBytes, shared::payload_limit(shared::kMinRingBytes)) < shared::kMinRingBytes);
static_assert(record_most(shared::kMaxRingBytes, shared::payload_limit(shared::kMaxRingBytes)) == shared::kMaxRecord);

}  // namespace uprobe::rings
