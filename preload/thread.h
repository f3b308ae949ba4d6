// SPDX-License-Identifier: MIT
// The agent's knowledge of the thread that it runs in. See thread.cpp.
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

// The entry of the thread with this thread pointer; made if `make`. Null: none, or the table is full (its data is then lost,
// without harm).
shared::ThreadEntry* thread_entry(ProcessBlock& block, u64 thread, bool make);

// Whether this is a child that runs in its parent's memory: it has its own signal dispositions, and its changes are not for
// the block.
bool borrows_memory(ProcessBlock& block);

// The same of a child whose begin the agent has not seen, because the number of the call was computed (Go's). getpid: changes nothing;
// not under a filter.
bool is_in_anothers_memory(const ProcessBlock& block);

// In a child with memory of its own `own` is the only thread. Null: it has no entry.
void forget_borrowers(ProcessBlock& block, const shared::ThreadEntry* own);

// Whether a child runs with this thread's control block, or this is that child: the kernel then maintains the block's rseq area
// for only one of them.
bool is_lent(ProcessBlock& block);

// Called when the place of the thread id or of rseq becomes known: see ProcessBlock::own_rseq.
void note_own_rseq(ProcessBlock& block);

struct CloneKind {
  u32 shares;  // the child's ThreadEntry::shares
  bool lends;  // the call gives a child in the same memory no control block of its own
};
// A thread returns from clone or vfork with this result.
void after_clone(ProcessBlock& block, u64 result, CloneKind kind);

// A child of fork begins, with memory of its own. Outside the tool's PID namespace it asks for its number there; until then its
// records name a child of its parent. gettid and futex: under a filter, which may not know them, that remains so.
void begin_process(ProcessBlock& block);

}  // namespace uprobe::agent
