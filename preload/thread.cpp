// SPDX-License-Identifier: MIT
// The id of the calling thread, without a system call: libc keeps it in the thread control block (shared::kControlBlocks).
// Before that exists, and in programs without such a libc, the process id stands in.
#include "preload/thread.h"

#include "arch/entry/cpu.h"
#include "preload/agent.h"
#include "preload/ring.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

// ProcessBlock::own_rseq without the count of borrowers.
i64 rseq_part(i64 word) { return word & (shared::kBorrowedStep - 1); }

void learn_layout(ProcessBlock& block) {
  const u64 self = thread_pointer();
  if (self == 0) return;
  for (const shared::ControlBlockLayout& layout : shared::kControlBlocks) {
    u64 list = 0;
    if (!uprobe_peek8(self + static_cast<u64>(layout.list), &list)) return;
    if (list == self + static_cast<u64>(layout.list)) {
      block.tid_offset = layout.tid;
      note_own_rseq(block);
      return;
    }
  }
}

// 0: there is no control block, or its libc is unknown.
u32 id_in_control_block(ProcessBlock& block) {
  if (block.tid_offset == 0) learn_layout(block);
  u64 value = 0;
  return block.tid_offset != 0 && uprobe_peek_thread4(block.tid_offset, &value) ? static_cast<u32>(value) : 0;
}

}  // namespace

// Two threads may learn one of the two places each: at least one of them sees both.
void note_own_rseq(ProcessBlock& block) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (block.tid_offset == 0 || block.rseq_offset == 0) return;
  i64 word = __atomic_load_n(&block.own_rseq, __ATOMIC_RELAXED);
  while (rseq_part(word) == 0 &&
         !__atomic_compare_exchange_n(&block.own_rseq, &word, word + block.rseq_offset + shared::kRseqBias, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// By its instruction where user code may use that, else from where the control block has its own address (not in Go). Event programs
// ask for it within the rseq section.
UPROBE_IN_SECTION u64 thread_pointer() {
  if ((uprobe_block->flags & shared::kBlockReadsThreadPointer) != 0) return read_thread_pointer();
  u64 low = 0, high = 0;
  if (!uprobe_peek_thread4(0, &low) || !uprobe_peek_thread4(4, &high)) return 0;
  return high << 32 | low;
}

shared::ThreadEntry* thread_entry(ProcessBlock& block, u64 thread, bool make) {
  static_assert(shared::kThreadEntries == 1 << 12);
  shared::ThreadEntry* threads = threads_of(block).first;
  if (threads == nullptr) return nullptr;
  const u32 mask = shared::kThreadEntries - 1;
  if (thread == 0) thread = 1;  // there is no control block yet
  u32 slot = shared::hash_slot(thread, 12);
  for (u32 i = 0; i <= mask; ++i, slot = (slot + 1) & mask) {
    u64 found = __atomic_load_n(&threads[slot].thread, __ATOMIC_RELAXED);
    if (found == thread) return &threads[slot];
    if (found != 0) continue;
    if (!make) return nullptr;
    if (__atomic_compare_exchange_n(&threads[slot].thread, &found, thread, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      threads[slot].blocked = block.start_blocked;  // its virtual mask without an entry
      return &threads[slot];
    }
    if (found == thread) return &threads[slot];
  }
  return nullptr;
}

namespace {

const shared::ThreadEntry* lent_entry(ProcessBlock& block) {
  if (shared::borrowers(__atomic_load_n(&block.own_rseq, __ATOMIC_RELAXED)) == 0) return nullptr;
  return thread_entry(block, thread_pointer(), false);
}

// 0: the calling thread has a control block of its own. gettid changes nothing: it is safe unless a filter forbids it.
u32 borrower(ProcessBlock& block, const shared::ThreadEntry& entry) {
  if (entry.beside == 0 || (block.flags & shared::kBlockFiltered) != 0) return entry.borrower;
  const u32 real = static_cast<u32>(system_call(kSysGettid));
  return real != id_in_control_block(block) ? real : 0;
}

bool lent(const shared::ThreadEntry* entry) { return entry != nullptr && (entry->borrower != 0 || entry->beside != 0); }

void count_borrowed(ProcessBlock& block, bool more) {
  __atomic_fetch_add(&block.own_rseq, more ? -shared::kBorrowedStep : shared::kBorrowedStep, __ATOMIC_RELAXED);
}

// If getppid(2) is 0 the parent is in another namespace. The call changes nothing, like gettid.
bool has_moved_away(const ProcessBlock& block) {
  return !shared::is_elsewhere(task_words(block)) && (block.flags & shared::kBlockFiltered) == 0 &&
         system_call(kSysGetppid) == 0;
}

}  // namespace

void forget_borrowers(ProcessBlock& block, const shared::ThreadEntry* own) {
  if (shared::borrowers(block.own_rseq) == 0) return;
  for (shared::ThreadEntry& entry : threads_of(block))
    if (&entry != own && lent(&entry)) entry.borrower = entry.beside = 0;
  block.own_rseq = rseq_part(block.own_rseq) - (lent(own) ? shared::kBorrowedStep : 0);
  if ((block.flags & shared::kBlockMovedAway) != 0) count_borrowed(block, true);
}

bool borrows_memory(ProcessBlock& block) {
  const shared::ThreadEntry* entry = lent_entry(block);
  return entry != nullptr && (entry->beside != 0 || entry->shares != 0) && borrower(block, *entry) != 0;
}

bool is_lent(ProcessBlock& block) { return lent(lent_entry(block)); }

namespace {

u32 forked_process;  // whose memory this is, if a fork made it; 0: the block's

}  // namespace

bool is_in_anothers_memory(const ProcessBlock& block) {
  if ((block.flags & shared::kBlockFiltered) != 0) return false;
  return static_cast<u32>(system_call(kSysGetpid)) != (forked_process != 0 ? forked_process : block.pid);
}

// A child that uses its parent's control block (of vfork and posix_spawn, and of clone without CLONE_SETTLS) shows by its
// thread id, which the block does not have. If a filter forbids gettid, the call's flags show it, and the child uses its
// parent's id. The parent comes here as well: it clears the state of a child in its memory that has gone on or ended. It may
// itself be such a child.
void after_clone(ProcessBlock& block, u64 result, CloneKind kind) {
  const bool is_child = result == 0, filtered = (block.flags & shared::kBlockFiltered) != 0;
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  const u32 believed = is_child || lent(entry) ? id_in_control_block(block) : 0;
  const u32 real = believed == 0 || filtered ? believed : static_cast<u32>(system_call(kSysGettid));
  const bool borrows = filtered ? is_child && believed != 0 && kind.lends : real != believed;
  if (is_child && believed != 0 && kind.shares != 0 && !borrows) forget_cpu(block);
  if (is_child && kind.shares == 0) forget_borrowers(block, entry);
  if (borrows) entry = thread_entry(block, thread_pointer(), true);
  if (entry == nullptr) return;
  if (entry->borrower != 0 && entry->shares != 0 && !borrows) entry->blocked = entry->parents_blocked;
  entry->parents_blocked = entry->blocked;
  entry->traced_at_exec = 0;
  const bool was_lent = lent(entry);
  entry->borrower = borrows ? real : 0;
  if (is_child) entry->goes_by_parent = borrows && has_moved_away(block) ? 1 : 0;
  if (is_child || !borrows) entry->shares = borrows ? kind.shares : 0;
  // Under a filter the parent of a grandchild could not tell which of them it is itself.
  if (is_child && borrows && (kind.shares == 1 || (filtered && was_lent))) entry->beside = 1;
  if (lent(entry) != was_lent) count_borrowed(block, !was_lent);
}

void begin_process(ProcessBlock& block) {
  if ((block.flags & shared::kBlockFiltered) == 0) forked_process = static_cast<u32>(system_call(kSysGetpid));
  const shared::TaskWords words = task_words(block);
  const bool moves = has_moved_away(block);
  if (!moves && !shared::is_elsewhere(words)) return;
  if (moves && (block.flags & shared::kBlockMovedAway) == 0) {
    block.flags |= shared::kBlockMovedAway;
    count_borrowed(block, true);
  }
  const shared::TaskWords of_child = shared::words_of(shared::task_of(words.process, words.thread).process, true);
  block.process_word = of_child.process, block.thread_word = of_child.thread;
  block.own_process = 0;
  if ((block.flags & shared::kBlockFiltered) != 0) return;
  const u32 tid = static_cast<u32>(system_call(kSysGettid));
  ask_tool(block, session_area(block, 0), {shared::MailKind::process_begins, tid, 0, 0});
}

u32 thread_id(ProcessBlock& block, bool may_fault) {
  if (!may_fault) return block.pid;
  const shared::ThreadEntry* entry = lent_entry(block);
  const u32 child = entry != nullptr ? borrower(block, *entry) : 0;
  if (child != 0 && entry->goes_by_parent == 0) return child;
  const u32 id = id_in_control_block(block);
  return id != 0 ? id : block.pid;
}

}  // namespace uprobe::agent
