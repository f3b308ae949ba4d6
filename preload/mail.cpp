// Asking the tool: a slot in the session area, a futex word, and system calls made here on its behalf.
//
// Only reached from hooks in the dynamic loader and at mmap and mprotect (code was mapped or unmapped), around execve and
// at the end of the program, never from a probe's hit. The system calls are futex on our own shared memory and what the tool commands (mmap for displaced copies): a process
// that may not make these cannot load libraries either. Every wait is bounded, and after one deadline passed nobody asks again.
#include "arch/x86/entry/cpu.h"
#include "preload/agent.h"
#include "preload/ring.h"
#include "preload/system_call.h"
#include "preload/thread.h"

namespace uprobe::agent {
namespace {

using shared::MailSlot;
using shared::MailState;

constexpr u64 kFutexWait = 0, kFutexWake = 1;
constexpr Patience kPatience{.slice_nanoseconds = 200'000'000, .silent_slices = 5, .slices = 50, .lifeline = -1};

struct Timespec {
  i64 seconds, nanoseconds;
};

void wake(u32* word) { system_call(kSysFutex, as_word(word), kFutexWake, 1); }

MailState state_of(const MailSlot& slot) {
  return static_cast<MailState>(__atomic_load_n(&slot.state, __ATOMIC_ACQUIRE));
}

void set_state(MailSlot& slot, MailState state) {
  __atomic_store_n(&slot.state, static_cast<u32>(state), __ATOMIC_RELEASE);
}

MailSlot* find_slot(AreaHeader* area) {
  auto* slots = at_offset<MailSlot>(area, area->mail_offset);
  for (u32 i = 0; i < area->mail_count && i < shared::kMailSlots; ++i) {
    u32 expected = static_cast<u32>(MailState::free);
    if (__atomic_compare_exchange_n(&slots[i].state, &expected, static_cast<u32>(MailState::claimed), false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return &slots[i];
  }
  return nullptr;
}

// Sleeps while the word has this value; false when a whole slice went by.
bool wait_slice(const u32& word, u32 value, i64 nanoseconds) {
  const Timespec slice{0, nanoseconds};
  constexpr long kTimedOut = -110;
  return system_call(kSysFutex, as_word(&word), kFutexWait, value, as_word(&slice)) != kTimedOut;
}

bool is_recording(const AreaHeader* area) {
  return area->tool_gone == 0 && area->state == static_cast<u32>(shared::SessionState::recording);
}

// Hundreds of programs may begin at the same time: who finds every slot taken waits for one as long as for an answer. A slice may
// be slept for nothing (the tool frees slots too, and wakes nobody).
MailSlot* await_slot(AreaHeader* area, const Patience& patience) {
  u32 silent = 0, pulse = __atomic_load_n(&area->tool_pulse, __ATOMIC_RELAXED);
  for (u32 slices = 0; slices < patience.slices && silent < patience.silent_slices && is_recording(area);) {
    const u32 freed = __atomic_load_n(&area->mail_freed, __ATOMIC_SEQ_CST);
    if (MailSlot* slot = find_slot(area); slot != nullptr) return slot;
    if (wait_slice(area->mail_freed, freed, patience.slice_nanoseconds)) continue;
    const u32 now = __atomic_load_n(&area->tool_pulse, __ATOMIC_RELAXED);
    ++slices;
    silent = now == pulse ? silent + 1 : 0;
    pulse = now;
  }
  return nullptr;
}

MailSlot* claim_slot(AreaHeader* area, const Patience& patience) {
  if (MailSlot* slot = find_slot(area); slot != nullptr) return slot;
  __atomic_fetch_add(&area->mail_queue, 1, __ATOMIC_SEQ_CST);
  MailSlot* slot = await_slot(area, patience);
  __atomic_fetch_sub(&area->mail_queue, 1, __ATOMIC_SEQ_CST);
  return slot;
}

void free_slot(AreaHeader* area, MailSlot& slot) {
  __atomic_store_n(&slot.state, static_cast<u32>(MailState::free), __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&area->mail_queue, __ATOMIC_SEQ_CST) == 0) return;
  __atomic_fetch_add(&area->mail_freed, 1, __ATOMIC_SEQ_CST);
  wake(&area->mail_freed);
}

void execute(MailSlot& slot) {
  const u64* c = slot.command;
  // A function: the resolver of an IFUNC in a relocated object, which the loader may call at any time as well.
  slot.result = c[0] == shared::kCallFunction
                    ? reinterpret_cast<u64 (*)()>(c[1])()
                    : static_cast<u64>(system_call(static_cast<long>(c[0]), c[1], c[2], c[3], c[4], c[5], c[6]));
  set_state(slot, MailState::result);
  wake(&slot.state);
}

// Leaves the slot to the tool, unless that finishes at this very moment: true then.
bool abandon(MailSlot& slot) {
  u32 seen = __atomic_load_n(&slot.state, __ATOMIC_RELAXED);
  while (seen != static_cast<u32>(MailState::done) &&
         !__atomic_compare_exchange_n(&slot.state, &seen, static_cast<u32>(MailState::abandoned), false,
                                      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return seen == static_cast<u32>(MailState::done);
}

// A number that the tool finds both in the slot and in the block of whoever asks.
u64 sign(ProcessBlock& block, u32 slot) {
  u64 token = 0;
  if (!uprobe_clock(&token) || token == 0) token = as_word(&token);
  return block.mail_tokens[slot] = token;
}

}  // namespace

bool is_cut(i32 lifeline) {
  struct {
    i32 fd;
    u16 events, returned;
  } poll{lifeline, 0, 0};
  constexpr long kSysPoll = 7;
  return lifeline >= 0 && system_call(kSysPoll, as_word(&poll), 1, 0) == 1;
}

bool converse(const u32& tool_pulse, MailSlot& slot, const Patience& patience) {
  u32 silent = 0, pulse = __atomic_load_n(&tool_pulse, __ATOMIC_RELAXED);
  for (u32 slices = 0; slices < patience.slices && silent < patience.silent_slices;) {
    const MailState state = state_of(slot);
    if (state == MailState::done) return true;
    if (state == MailState::command) {
      execute(slot);
      continue;
    }
    if (wait_slice(slot.state, static_cast<u32>(state), patience.slice_nanoseconds)) continue;
    if (is_cut(patience.lifeline)) break;
    const u32 now = __atomic_load_n(&tool_pulse, __ATOMIC_RELAXED);
    ++slices;
    silent = now == pulse ? silent + 1 : 0;
    pulse = now;
  }
  return abandon(slot);
}

void ask_tool(ProcessBlock& block, AreaHeader* area, const Request& request) {
  learn_rseq(block);  // the first request comes when libc has set up the thread
  if (area == nullptr || !is_recording(area)) return;
  MailSlot* slot = claim_slot(area, kPatience);
  if (slot == nullptr) {
    __atomic_fetch_add(&area->mail_timeouts, 1, __ATOMIC_RELAXED);
    return;
  }
  slot->kind = static_cast<u32>(request.kind);
  slot->tid = request.tid;
  slot->path = request.path;
  slot->folder = request.folder;
  slot->block = as_word(&block);
  slot->token = sign(block, static_cast<u32>(slot - at_offset<MailSlot>(area, area->mail_offset)));
  set_state(*slot, MailState::request);
  __atomic_fetch_add(&area->mail_requests, 1, __ATOMIC_RELEASE);
  wake(&area->mail_requests);
  if (converse(area->tool_pulse, *slot, kPatience)) return free_slot(area, *slot);
  __atomic_fetch_add(&area->mail_timeouts, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&area->tool_gone, 1, __ATOMIC_RELAXED);
}

// A filter that was there before us has seen these calls already. A child in its parent's memory leaves it to the parent.
void flush_output(ProcessBlock& block) {
  AreaHeader* area = session_area(block, 0);
  if (area == nullptr || (area->mode & shared::kModePreloaded) == 0) return;
  if ((block.flags & shared::kBlockFilteredLater) != 0 || borrows_memory(block)) return;
  ask_tool(block, area, {shared::MailKind::flush, 0, 0, 0});
}

}  // namespace uprobe::agent
