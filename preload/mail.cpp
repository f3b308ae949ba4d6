// SPDX-License-Identifier: MIT
// Requests to the tool: a slot of the process's own mailbox (engine/shared/mailbox.h), and system calls that the tool commands.
//
// Reached only from internal points in the dynamic loader and at mmap and mprotect (code was mapped or unmapped), around
// execve, in a child of fork in another PID namespace than the tool's, at the end of the program, and from a breakpoint that
// has aborted a restartable sequence; never from a probe's hit. The system calls are futex on shared memory and the tool's
// commands (mmap for displaced copies): a process that may not make these cannot load libraries either. Every wait is bounded,
// and after one missed deadline the process asks no more.
//
// Any process of the session can wake this thread, or take its bell: so each wait lasts one slice at most, after which the
// thread looks into its own mailbox, and rings again until the tool has seen the request.
#include "arch/entry/cpu.h"
#include "preload/agent.h"
#include "preload/ring.h"
#include "preload/system_call.h"
#include "preload/thread.h"

namespace uprobe::agent {
namespace {

using shared::Mailbox;
using shared::MailSlot;
using shared::MailState;
using shared::Notice;
using shared::Turn;

constexpr u64 kFutexWait = 0, kFutexWake = 1, kAll = 0x7fffffff;
constexpr i64 kSlice = 20'000'000;
constexpr u32 kSilentSlices = 40, kSlices = 500;
// So many waits may end early; after them the thread sleeps the rest where no other process can wake it.
constexpr u32 kIdleWakes = 64;

struct Timespec {
  i64 seconds, nanoseconds;
};

// Wakes all waiting threads: with a single wake, a thread of another process might take it.
void wake(u32* word) { system_call(kSysFutex, as_word(word), kFutexWake, kAll); }

u32 load(const u32& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

void say(Turn& turn, u32 word) {
  __atomic_store_n(&turn.word, word, __ATOMIC_RELEASE);
  __atomic_store_n(&turn.check, word, __ATOMIC_SEQ_CST);
}

// 0: the word is being written.
u32 hear(const Turn& turn) {
  const u32 check = __atomic_load_n(&turn.check, __ATOMIC_SEQ_CST);
  const u32 word = __atomic_load_n(&turn.word, __ATOMIC_SEQ_CST);
  return word == check ? word : 0;
}

// Sleeps while the word has this value; false when a whole slice went by.
bool wait_slice(const u32& word, u32 value, i64 nanoseconds) {
  const Timespec slice{0, nanoseconds};
  constexpr long kTimedOut = -110;
  return system_call(kSysFutex, as_word(&word), kFutexWait, value, as_word(&slice)) != kTimedOut;
}

// How long the tool has been silent.
class Silence {
 public:
  explicit Silence(const Line& line) : line_(line), heartbeat_(load(*line.heartbeat)) {}

  // Waits until the tool may have said something. False: it has been silent for too long.
  bool wait(const Mailbox* box, const u32& word, u32 value) {
    if (idle_wakes_ < kIdleWakes && wait_slice(word, value, line_.slice_nanoseconds)) {
      ++idle_wakes_;
      return true;
    }
    if (idle_wakes_ == kIdleWakes && box != nullptr) wait_slice(box->quiet, load(box->quiet), line_.slice_nanoseconds);
    idle_wakes_ = 0;
    if (is_cut(line_.lifeline)) return false;
    const u32 now = load(*line_.heartbeat);
    silent_ = now == heartbeat_ ? silent_ + 1 : 0;
    heartbeat_ = now;
    return ++slices_ < line_.slices && silent_ < line_.silent_slices;
  }
  void has_heard() { idle_wakes_ = 0; }

 private:
  const Line& line_;
  u32 heartbeat_, silent_ = 0, slices_ = 0, idle_wakes_ = 0;
};

Notice& notice_of(AreaHeader* area, u32 called) { return area->notices[called % shared::kNotices]; }

// The number by which a thread rings. The tool looks for a child that has not been told its number among the children of its
// parent, or of the process that was loaded, if these have numbers in the tool's namespace.
u32 called(const ProcessBlock& block, u32 tid) {
  const shared::TaskWords words = task_words(block);
  if (!shared::is_elsewhere(words)) return tid;
  const shared::TaskNumber task = shared::task_of(words.process, words.thread);
  if (!task.of_child) return task.process;
  return (task.process != 0 ? task.process : block.pid) | shared::kBellOfChild;
}

Line line_to(AreaHeader* area, u32 called) {
  return {.heartbeat = &area->tool_heartbeat,
          .wake = &notice_of(area, called).wake,
          .bell = &live_of(area).mail_requests,
          .slice_nanoseconds = kSlice,
          .silent_slices = kSilentSlices,
          .slices = kSlices,
          .lifeline = -1};
}

// ---- the slot

MailSlot* find_slot(Mailbox& box) {
  for (MailSlot& slot : box.slots) {
    u32 expected = 0;
    if (__atomic_compare_exchange_n(&slot.taken, &expected, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return &slot;
  }
  return nullptr;
}

// Whether the session has ended. A request that the tool has not seen then waits for no answer.
bool is_over(const AreaHeader* area) { return load(area->tool_gone) != 0 || !is_recording(*area); }

bool is_answered(const ProcessBlock& block, const AreaHeader* area) {
  return __atomic_load_n(&block.tool_gone, __ATOMIC_RELAXED) == 0 && !is_over(area);
}

// More threads may ask than there are slots: a thread that finds all taken waits for one as long as for an answer.
MailSlot* await_slot(const ProcessBlock& block, AreaHeader* area, Mailbox& box, const Line& line) {
  Silence silence(line);
  while (is_answered(block, area)) {
    const u32 freed = __atomic_load_n(&box.freed, __ATOMIC_SEQ_CST);
    if (MailSlot* slot = find_slot(box); slot != nullptr) return slot;
    if (!silence.wait(&box, box.freed, freed)) break;
  }
  return nullptr;
}

MailSlot* take_slot(const ProcessBlock& block, AreaHeader* area, Mailbox& box, const Line& line) {
  if (MailSlot* slot = find_slot(box); slot != nullptr) return slot;
  __atomic_fetch_add(&box.queue, 1, __ATOMIC_SEQ_CST);
  MailSlot* slot = await_slot(block, area, box, line);
  __atomic_fetch_sub(&box.queue, 1, __ATOMIC_SEQ_CST);
  return slot;
}

void free_slot(Mailbox& box, MailSlot& slot) {
  __atomic_store_n(&slot.taken, 0, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&box.queue, __ATOMIC_SEQ_CST) == 0) return;
  __atomic_fetch_add(&box.freed, 1, __ATOMIC_SEQ_CST);
  wake(&box.freed);
}

// Later than any number in the slot: an answer to an earlier request is then not taken for one to this.
u32 fresh_number(const MailSlot& slot) {
  const u32 asked = shared::number_of(load(slot.asked.word)), answered = shared::number_of(load(slot.answered.word));
  const bool is_after = shared::number_after(answered, ~asked + 1) < shared::number_after(0, 1u << 27);
  return shared::number_after(is_after ? answered : asked, 2);
}

// ---- the conversation

void ring(const Line& line) {
  __atomic_fetch_add(line.bell, 1, __ATOMIC_RELEASE);
  wake(line.bell);
}

// A bell holds the number of the asking thread. It may become free at any moment: the tool or another process has taken it.
void ring_for(AreaHeader* area, u32 called) {
  shared::LiveHeader& live = live_of(area);
  bool is_rung = false;
  for (u32 i = 0; i < shared::kBells && !is_rung; ++i) {
    u32& bell = live.bells[(called + i) % shared::kBells];
    u32 expected = 0;
    is_rung = __atomic_compare_exchange_n(&bell, &expected, called, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
              expected == called;
  }
  if (!is_rung) __atomic_store_n(&live.bells_missed, 1, __ATOMIC_RELEASE);
}

// Counts the tool's refusals to this thread's number. One of them may be older than this request.
class Refusals {
 public:
  Refusals(AreaHeader* area, u32 called)
      : notice_(notice_of(area, called)), called_(called), count_(load(notice_.refused_count)) {}
  bool are_enough() {
    const u32 now = load(notice_.refused_count);
    if (now == count_) return false;
    count_ = now;
    seen_ += load(notice_.refused) == called_ ? 1 : 0;
    return seen_ >= 2;
  }

 private:
  const Notice& notice_;
  u32 called_, count_, seen_ = 0;
};

u64 execute(const MailSlot& slot) {
  u64 c[7];
  copy_words(c, slot.command, sizeof c);
  // A function: the resolver of an IFUNC in a relocated object, which the loader may call at any time as well.
  if (c[0] == shared::kCallFunction) return reinterpret_cast<u64 (*)()>(c[1])();
  return static_cast<u64>(system_call(static_cast<long>(c[0]), c[1], c[2], c[3], c[4], c[5], c[6]));
}

// Gives up, unless the tool finishes at this very moment: then true.
bool abandon(MailSlot& slot, u32 number) {
  say(slot.asked, shared::turn(number, MailState::abandoned));
  const bool is_done = hear(slot.answered) == shared::turn(shared::number_after(number, 1), MailState::done);
  say(slot.asked, shared::turn(number, is_done ? MailState::accepted : MailState::left));
  return is_done;
}

// Calls `unseen` after each wait while the tool has not seen the request; `unseen` says whether to go on.
template <class Unseen>
bool converse_until(const Line& line, const Mailbox* box, MailSlot& slot, u32 number, const Unseen& unseen) {
  const u32 first = number;
  Silence silence(line);
  for (;;) {
    const u32 wake_value = load(*line.wake), next = shared::number_after(number, 1), heard = hear(slot.answered);
    if (heard == shared::turn(next, MailState::done))
      return say(slot.asked, shared::turn(number, MailState::accepted)), true;
    if (heard == shared::turn(next, MailState::command)) {
      slot.result = execute(slot);
      say(slot.asked, shared::turn(number = shared::number_after(next, 1), MailState::result));
      ring(line);
      silence.has_heard();
      continue;
    }
    const bool is_unseen = number == first && heard != shared::turn(number, MailState::working);
    if (is_unseen && !unseen()) break;
    if (!silence.wait(box, *line.wake, wake_value)) break;
  }
  return abandon(slot, number);
}

void give_up(ProcessBlock& block, AreaHeader* area) {
  __atomic_fetch_add(&live_of(area).mail_timeouts, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&block.tool_gone, 1, __ATOMIC_RELAXED);
  if (block.semaphore_count != 0) count_down_semaphores(block);
}

}  // namespace

bool is_cut(i32 lifeline) {
  struct {
    i32 fd;
    u16 events, returned;
  } poll{lifeline, 0, 0};
  return lifeline >= 0 && system_call(kSysPoll, as_word(&poll), 1, 0) == 1;
}

void say_request(MailSlot& slot, u32 number) { say(slot.asked, shared::turn(number, MailState::request)); }

bool converse(const Line& line, MailSlot& slot, u32 number) {
  return converse_until(line, nullptr, slot, number, [] { return true; });
}

// Not under a filter that came later: it may forbid the waiting, and whatever the tool has the thread do.
bool ask_tool(ProcessBlock& block, AreaHeader* area, const Request& request, u64* answer) {
  if ((__atomic_load_n(&block.flags, __ATOMIC_RELAXED) & shared::kBlockFilteredLater) != 0) return false;
  learn_rseq(block);  // the first request comes when libc has set up the thread
  if (area == nullptr || !is_answered(block, area)) return false;
  Mailbox& box = *mailbox_of(area);
  const u32 called = agent::called(block, request.tid);
  const Line line = line_to(area, called);
  MailSlot* slot = take_slot(block, area, box, line);
  if (slot == nullptr) {
    __atomic_fetch_add(&live_of(area).mail_timeouts, 1, __ATOMIC_RELAXED);
    return false;
  }
  slot->kind = static_cast<u32>(request.kind);
  slot->tid = request.tid;
  slot->called = called;
  slot->path = request.path;
  slot->folder = request.folder;
  slot->block = as_word(&block);
  const u32 number = fresh_number(*slot);
  say_request(*slot, number);
  Refusals refusals(area, called);
  bool is_refused = false;
  const bool is_done = converse_until(line, &box, *slot, number, [&] {
    ring_for(area, called);
    ring(line);
    return !(is_refused = refusals.are_enough()) && !is_over(area);
  });
  if (!is_done && !is_refused && !is_over(area)) give_up(block, area);
  if (is_done && answer != nullptr) *answer = slot->folder;
  free_slot(box, *slot);
  return is_done;
}

// A filter that is older than the agent has allowed these calls before. A child in its parent's memory leaves the flush to the
// parent.
//
// The request is for a round of printing that begins after it; only the tool writes how many have begun and ended.
void flush_output(ProcessBlock& block) {
  AreaHeader* area = session_area(block, 0);
  if (area == nullptr || (area->mode & (shared::kModePreloaded | shared::kModeDaemonize)) == 0) return;
  if ((block.flags & shared::kBlockFilteredLater) != 0 || borrows_memory(block) || !is_answered(block, area)) return;
  Line line = line_to(area, 0);
  line.wake = &area->flush_done;
  const u32 begun = load(area->flush_begun);
  __atomic_fetch_add(&live_of(area).flush_requests, 1, __ATOMIC_SEQ_CST);
  ring(line);
  Silence silence(line);
  for (;;) {
    const u32 done = load(area->flush_done);
    if (static_cast<i32>(done - begun) > 0) return;
    if (!silence.wait(mailbox_of(area), area->flush_done, done)) return give_up(block, area);
  }
}

}  // namespace uprobe::agent
