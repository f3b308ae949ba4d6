// SPDX-License-Identifier: MIT
// CPU rings, written inside rseq sections of libc's registration. The agent never registers an area.
//
// cpu_id does not show whether the kernel maintains it for this thread. It does not in a child that runs on its parent's
// control block (vfork, clone with CLONE_VM; ProcessBlock::own_rseq), nor in a new thread before libc registers it
// (forget_cpu).
#include "preload/ring.h"
#include "preload/system_call.h"
#include "preload/thread.h"

namespace uprobe::agent {
namespace {

// rseq.S uses the offsets.
struct RseqJob {
  Rseq* rseq;
  Ring* ring;
  u64 commit;
  i32 tries;
  RecordBuilder* builder;
};
static_assert(offsetof(RseqJob, ring) == 8 && offsetof(RseqJob, commit) == 16 && offsetof(RseqJob, tries) == 24);

constexpr u32 kRseqGaveUp = 100;  // from here on no Built: too many interruptions, or a load that faulted (rseq.S)
constexpr i32 kMostTries = 100;

constexpr u64 kRseqUnregister = 1;

extern "C" __attribute__((visibility("hidden"))) u32 uprobe_rseq_record(RseqJob* job);

// The first part of the section: rseq.S stores the commit. The kernel compares the CPU when it interrupts the section, so
// from that comparison on the ring is the CPU's.
extern "C" __attribute__((visibility("hidden"), used)) UPROBE_IN_SECTION u32 uprobe_build_record(RseqJob* job) {
  RecordBuilder& builder = *job->builder;
  const u32 cpu = __atomic_load_n(&job->rseq->cpu_id, __ATOMIC_RELAXED);
  if (cpu >= builder.area->cpu_ring_count) return kRseqGaveUp;
  builder.cpu = builder.index = cpu;
  builder.ring = job->ring = &at_offset<Ring>(builder.area, builder.area->ring_offset)[cpu];
  const u32 begun = static_cast<u32>(__atomic_load_n(&job->ring->commit, __ATOMIC_RELAXED)) + 1;
  __atomic_store_n(&job->ring->begun, begun, __ATOMIC_RELEASE);
  const Built built = build_record(builder);
  // A record that is not published has not begun.
  if (built != Built::ok) __atomic_store_n(&job->ring->begun, begun - 1, __ATOMIC_RELAXED);
  job->commit = builder.commit;
  return static_cast<u32>(built);
}

}  // namespace

Rseq* rseq_of(ProcessBlock& block) {
  if (block.rseq_offset == 0) return nullptr;
  const u64 thread = thread_pointer();
  if (thread == 0) return nullptr;
  if (is_lent(block)) return nullptr;
  const u64 at = thread + static_cast<u64>(i64{block.rseq_offset});
  u64 ids = 0, section = 0;
  if (!uprobe_peek8(at, &ids) || static_cast<i64>(ids) < 0) return nullptr;
  // A program with an FS base of its own may have other data there, which must not change.
  if (!uprobe_peek8(at + 8, &section) || section != 0) return nullptr;
  return reinterpret_cast<Rseq*>(at);
}

namespace {

// Asks to end a registration with a wrong signature: that changes nothing, and fails with EPERM only if the calling
// thread has registered exactly this area (kernel/rseq.c). Asking to register it again fails with EBUSY, which shows that its
// signature is the usual one.
bool is_registered(u64 area, u64 bytes) {
  constexpr long kPermission = -1, kBusy = -16;
  return system_call(kSysRseq, area, bytes, kRseqUnregister, 0) == kPermission &&
         system_call(kSysRseq, area, bytes, 0, shared::kRseqSignature) == kBusy;
}

// glibc keeps the area in or right before its thread control block, whose place and size differ by version; it is aligned to
// 32 bytes. 0: none has that size.
u64 area_near(u64 thread, u64 bytes) {
  constexpr u64 kStep = 32, kFarthest = 16384;
  const u64 first = thread & ~(kStep - 1);
  for (u64 distance = 0; distance <= kFarthest; distance += kStep) {
    if (is_registered(first + distance, bytes)) return first + distance;
    if (is_registered(first - distance, bytes)) return first - distance;
  }
  return 0;
}

}  // namespace

bool record_on_cpu(RecordBuilder& builder, Built& built) {
  if (builder.hit->no_rseq || builder.area->cpu_ring_count == 0) return false;
  Rseq* rseq = rseq_of(*builder.hit->block);
  if (rseq == nullptr) return false;
  builder.in_section = true;
  RseqJob job{rseq, nullptr, 0, kMostTries, &builder};
  const u32 result = uprobe_rseq_record(&job);
  built = static_cast<Built>(result);
  return result < kRseqGaveUp && built != Built::wants_call;
}

void learn_rseq(ProcessBlock& block) {
  if (block.rseq_offset != 0 || (block.flags & shared::kBlockFiltered) != 0) return;
  const u64 thread = thread_pointer();
  if (thread == 0) return;
  // The sizes that libc registers. Each try is a system call, so the usual one comes first.
  constexpr u64 kOriginal = 32, kNext = 64;
  u64 area = area_near(thread, kOriginal);
  if (area == 0) area = area_near(thread, kNext);
  if (area == 0) return;
  block.rseq_offset = static_cast<i32>(area - thread);
  note_own_rseq(block);
}

void forget_cpu(const ProcessBlock& block) {
  constexpr u32 kUninitialized = ~u32{0};  // RSEQ_CPU_ID_UNINITIALIZED, until the kernel writes the number
  if (block.rseq_offset == 0) return;
  auto* rseq = reinterpret_cast<Rseq*>(thread_pointer() + static_cast<u64>(i64{block.rseq_offset}));
  __atomic_store_n(&rseq->cpu_id, kUninitialized, __ATOMIC_RELAXED);
}

}  // namespace uprobe::agent
