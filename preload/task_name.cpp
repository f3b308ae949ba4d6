// SPDX-License-Identifier: MIT
// A name is a record among the hits (kRecordTaskName), so the reader learns it before it prints the thread's first hit. The
// ring is a claimed one: a new thread has no rseq yet. It takes little stack, since a new thread may have little. If no ring is
// free, or the ring is full, the name is lost unless hits wait for room, and the reader uses /proc alone.
#include "preload/task_name.h"

#include "arch/entry/cpu.h"
#include "engine/shared/task_name.h"
#include "preload/ring.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

using shared::NameRecord;
constexpr u32 kWithoutName = offsetof(NameRecord, name);

struct Says {
  u32 tid;
  bool name;  // else the name may have changed
  u16 kind;
};

// The name is read after the stamp: another thread that changes it later makes a record of its own, with a later stamp.
u32 build(const ProcessBlock& block, const Room& room, u64 tsc, u32 cpu, const Says& says) {
  auto& record = *reinterpret_cast<NameRecord*>(room.at);
  alignas(8) u8 name[shared::kNameBytes] = {};
  const bool is_known = says.name && get_task_name(name);
  if (is_known) copy_words(record.name, name, sizeof name);
  const u32 length = is_known ? u32{sizeof record} : kWithoutName;
  record.head.length = length;
  record.head.number = room.number;
  record.head.tsc = tsc;
  record.head.payload_bytes = length - static_cast<u32>(sizeof record.head);
  record.head.cpu = static_cast<u16>(cpu);
  record.head.flags = shared::kRecordTaskName | (tsc == 0 ? shared::kRecordNoClock : 0);
  put_task(block, says.tid, says.kind, reinterpret_cast<u8*>(&record.payload));
  // getpid: changes nothing, and a filter that may not know it is asked no more than for the name.
  record.payload.ip = says.name ? static_cast<u64>(system_call(kSysGetpid)) : 0;
  return length;
}

// False: there was no room.
bool try_to_write(const ProcessBlock& block, AreaHeader* area, const Says& says) {
  const u32 cpu = current_cpu();
  const u32 index = claim_ring(area, shared::owner_of(task_words(block), says.tid), cpu, Claim::any);
  if (index >= area->ring_count) return false;
  Ring& ring = at_offset<Ring>(area, area->ring_offset)[index];
  u64 tsc = 0;
  if (!uprobe_clock(&tsc)) tsc = 0;
  if (tsc != 0) __atomic_store_n(&ring.stamp, tsc, __ATOMIC_RELEASE);
  const Room room = room_of(area, ring, index);
  const bool has_room = room.bytes >= sizeof(NameRecord);
  if (has_room) {
    const u32 units = build(block, room, tsc, cpu, says) / 8;
    __atomic_store_n(&ring.commit, u64{room.position + units} << 32 | (room.number + 1), __ATOMIC_RELEASE);
  }
  __atomic_store_n(&ring.owner, 0, __ATOMIC_RELEASE);
  return has_room;
}

// Where hits wait for room, names do: without it the process of a thread that has ended is not known.
void write(const ProcessBlock& block, AreaHeader* area, const Says& says) {
  if (!is_recording(*area) || !rings_make_sense(area)) return;
  Wait wait;
  while (!try_to_write(block, area, says) && has_patience(block, *area, wait)) {
  }
}

void write_to_all(ProcessBlock& block, const Says& says) {
  for (u32 i = 0; i < shared::kMaxSessions; ++i)
    if (AreaHeader* area = session_area(block, i); area != nullptr) write(block, area, says);
}

}  // namespace

void record_task_name(ProcessBlock& block, bool begins) {
  const bool may_ask = (block.flags & shared::kBlockFiltered) == 0;
  write_to_all(block, {thread_id(block, true), may_ask, begins ? shared::kTaskBegins : u16{0}});
}

void forget_task_name(ProcessBlock& block, u32 tid) { write_to_all(block, {tid, false, 0}); }

}  // namespace uprobe::agent
