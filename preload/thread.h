// SPDX-License-Identifier: MIT
// What the agent knows of the thread that it runs in. See thread.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// The kThreadEntries entries of the table of threads; none where the block has no table.
struct Threads {
  shared::ThreadEntry* first;
  shared::ThreadEntry* begin() const { return first; }
  shared::ThreadEntry* end() const { return first != nullptr ? first + shared::kThreadEntries : nullptr; }
};
inline Threads threads_of(ProcessBlock& block) {
  return {block.thread_offset != 0 ? at_offset<shared::ThreadEntry>(&block, block.thread_offset) : nullptr};
}

// The entry of the thread with this thread pointer; made if `make`. Null: none, or the table is full (what it would say is
// then lost, no harm).
shared::ThreadEntry* thread_entry(ProcessBlock& block, u64 thread, bool make);

// Whether this is a child that runs in its parent's memory: it has its own signal dispositions, and what it sets is not for
// the block.
bool borrows_memory(ProcessBlock& block);

// In a child with memory of its own the other threads are not there, `own` is its only one. Null: nobody borrows from anybody.
void forget_borrowers(ProcessBlock& block, const shared::ThreadEntry* own);

// Whether a child runs with this thread's control block, or this is that child: the kernel then watches the rseq area of the
// block for one of them only.
bool is_lent(ProcessBlock& block);

// Comes when the place of the thread id or that of rseq has become known: see ProcessBlock::own_rseq.
void note_own_rseq(ProcessBlock& block);

struct CloneKind {
  u32 shares;  // what ThreadEntry::shares is to say of a child
  bool lends;  // a child in the same memory gets no control block with the call
};
// A thread comes out of clone or vfork with this result.
void after_clone(ProcessBlock& block, u64 result, CloneKind kind);

// A child of fork begins, with memory of its own. Where it is not in the tool's PID namespace it asks what its number is there; until
// then its records say that they are of its parent's child. gettid and futex: under a filter, which may not know them, it stays so.
void begin_process(ProcessBlock& block);

}  // namespace uprobe::agent
