// SPDX-License-Identifier: MIT
// The agent's inner interface: the functions by which its files call each other. In-target code: README.md has its rules.
//
//   SIGTRAP --entry.S--> trap.cpp -----.
//   jump    --jump.S---> jump_hit.cpp --+--> handle_hit --each consumer--> record_event --+--> ring_rseq.cpp:  a CPU ring
//   stub    --stub.S---> jump_hit.cpp --'    hit.cpp                       record.cpp     '--> ring_claim.cpp: a claimed ring
//                                                                          build_payload: interpret.cpp, filter.cpp,
//                                                                          trigger.cpp, actions.cpp
//
//   internal point --> calls.cpp, mappings.cpp, tracers.cpp ... --> ask_tool (mail.cpp)
//
// A Hit lives on the stack of the hit and owns nothing. All functions of the upper part are reentrant at every instruction,
// take no lock, allocate nothing, and make no system call but the prctl that reads a task's name. They check values from the
// block or the area at the place of use.
#pragma once

#include "arch/entry/signal_frame.h"
#include "engine/shared/event_program.h"
#include "engine/shared/mailbox.h"
#include "engine/shared/process_block.h"
#include "engine/shared/session_area.h"
#include "engine/shared/task_number.h"

namespace uprobe::agent {

using shared::AreaHeader;
using shared::Event;
using shared::EventCounts;
using shared::Insn;
using shared::Point;
using shared::ProcessBlock;
using shared::Registers;
using shared::Ring;

// entry.S of arch/entry
extern "C" {
extern ProcessBlock* uprobe_block __attribute__((visibility("hidden")));
struct FaultEntry {
  i32 insn, fixup;  // distances from the table
};
extern const FaultEntry uprobe_fault_table[] __attribute__((visibility("hidden")));
__attribute__((visibility("hidden"))) bool uprobe_peek8(u64 address, u64* out);
__attribute__((visibility("hidden"))) u64 uprobe_peek_word(u64 address);  // the same; 0 where there is no memory
__attribute__((visibility("hidden"))) bool uprobe_peek1(u64 address, u64* out);
__attribute__((visibility("hidden"))) u64 uprobe_peek_words(u64 address, u64* out, u64 count);  // readable ones
__attribute__((visibility("hidden"))) bool uprobe_poke8(u64 address, u64 value);
__attribute__((visibility("hidden"))) bool uprobe_poke4(u64 address, u64 value);
__attribute__((visibility("hidden"))) bool uprobe_count_down(u64 address);
__attribute__((visibility("hidden"))) bool uprobe_peek_thread4(i64 offset, u64* out);
__attribute__((visibility("hidden"))) bool uprobe_clock(u64* out);
__attribute__((visibility("hidden"))) void uprobe_trap_entry();
__attribute__((visibility("hidden"))) void uprobe_fault_entry();
__attribute__((visibility("hidden"))) void uprobe_app_fault_entry();
__attribute__((visibility("hidden"))) void uprobe_signal_entry();
__attribute__((visibility("hidden"))) long uprobe_interruptible_call(const u32* attention, long number, u64 a, u64 b,
                                                                     u64 c, u64 d, u64 e, u64 f);
__attribute__((visibility("hidden"))) long uprobe_open_call(long number, u64 a, u64 b, u64 c, u64 d);
__attribute__((visibility("hidden"))) void uprobe_open_call_end();
__attribute__((visibility("hidden"))) void uprobe_restorer();
__attribute__((visibility("hidden"))) void uprobe_return_copy();
}

// Functions that build records may run inside the rseq section and lie in it (rseq.S of arch/entry): they call nothing
// outside, so all that they use is inlined.
#define UPROBE_IN_SECTION __attribute__((section(".text.sorted.uprobe_rseq.1"), flatten))

// An entry record as its return reads it. See entry_record.cpp.
struct EntryRecord {
  bool known;
  bool self_known;
  u32 lot;          // thinning.h: drawn once for each hit; 0: not yet
  u64 nanoseconds;  // since the entry
  u64 self;         // nanoseconds of them outside of other probed calls; 0 if not known
  u64 words[shared::kNotedWords];
};

struct Changes;  // actions.h

// A hit in progress: all that recording needs.
struct Hit {
  ProcessBlock* block;
  const Point* point;
  Registers* registers;  // changed where a function returns: see handle_hit()
  u32 tid;               // in its own PID namespace
  bool may_fault;        // false: SIGSEGV or SIGBUS is blocked, a faulting load would kill the process: read nothing
  bool no_rseq;          // a load of this hit is known to fault, which an rseq section does not survive
  bool can_change;   // `registers` are those of a ChangingHit (actions.h); false: nothing can be changed at this hit
  u64 function = 0;  // of a return event: the function's address
  u64 vectors =
      0;  // address of the extended state of the current signal frame; 0: no signal came, and the registers still hold the
          // application's values, since the agent is compiled without them
  EntryRecord* noted = nullptr;  // room for the entry record of the current event; null: not wanted
};

// hit.cpp. Every way into the agent leads to this function: one record for each consumer of the point, newest first. If the
// function is left at the point, the consumers of its return follow all others, and `registers` then become those after the
// return. No system call, no lock, reentrant at every instruction.
void handle_hit(Hit& hit);

// hit.cpp. The same for the consumers of one kind, of a return to `address`; `registers` are those after the return, except ip,
// which is set here.
void handle_return(Hit& hit, shared::ConsumerKind kind, u64 address);

// Whether the tool has died. One that is stopped has not.
inline bool is_life_over(const AreaHeader& area) {
  return (__atomic_load_n(&area.tool_life, __ATOMIC_RELAXED) & shared::kLifeEnded) != 0;
}

// semaphores.cpp. The semaphores of markers when the tool is gone: they go down, so that the program makes no more arguments for
// them. watch_tool() does so after a hit, if the tool has died; it makes no system call. count_down_semaphores() makes one, which
// asks for the thread's signal mask.
void watch_tool(const Hit& hit);
void count_down_semaphores(ProcessBlock& block);

// record.cpp. Builds the record in place in a ring of the session and publishes it, or counts it as lost.
void record_event(const Hit& hit, AreaHeader* area, u32 event_index);

// Counts a return that will not be seen.
void count_missed(AreaHeader* area, u32 event_index);

// entry_record.cpp. Makes the entry record of the function that begins at the point, for an event at its return; of a call
// that the event leaves out, it only takes an older record away.
void note_entry(const Hit& hit, AreaHeader* area, u32 event_index, bool is_chosen = true);
// Fills in hit.noted for the call that returns now: `slot` held its return address. An entry record is taken once. Whether
// the event records the return.
bool take_entry(const Hit& hit, AreaHeader* area, u32 event_index, u64 slot);
// The event, if it wants entry records; else null.
const Event* noting_event(const AreaHeader* area, u32 event_index);

// interpret.cpp. The words of an entry record, as they follow its PayloadHead. False: the program makes no sense.
bool build_note(const Hit& hit, const AreaHeader* area, const Event& event, u64 (&words)[shared::kNotedWords]);

inline shared::TaskWords task_words(const ProcessBlock& block) { return {block.process_word, block.thread_word}; }

// The head of a payload, without its address.
[[gnu::always_inline]] inline void put_task(const ProcessBlock& block, u32 tid, u16 type, u8* payload) {
  const bool is_elsewhere = shared::is_elsewhere(task_words(block));
  const u32 first = type | block.process_word;
  const u32 second = (is_elsewhere ? tid & shared::kNumberMask : tid) | block.thread_word;
  __builtin_memcpy(payload, &first, 4);
  __builtin_memcpy(payload + shared::kTaskOffset, &second, 4);
}

// interpret.cpp. The payload of one event at `at`; at most `limit` bytes are written.
enum class Built : u32 {
  ok,
  no_room,
  too_big,
  wants_call,  // a system call is needed, which an rseq section must not make
  dropped,     // by the event's filter
  disabled,    // the event, or the session, is off
  over_rate,   // the event has had its records of this second
};
struct Payload {
  u8* at;
  u32 limit;
  u32 used;
  u16 record_flags;
  bool in_section;  // inside an rseq section
  u32 most;         // bytes that it may have at all; more than `limit`: the ring has not so much room now
};
Built build_payload(const Hit& hit, const AreaHeader* area, const Event& event, Payload& payload);

// vectors.cpp of arch/entry. The lowest `bytes` of vector register `number`, which are at most kYmmBytes.
void read_vector(const Hit& hit, u32 number, u32 bytes, u8* to);

// read.cpp. Reads of the application's memory. A load that faults costs its value and nothing else.
struct Reader {
  bool may_fault;
  bool load8(u64 address, u64& value) const { return may_fault && uprobe_peek8(address, &value); }
  u32 copy(u8* to, u64 from, u32 bytes) const;  // returns the number of readable bytes; the rest is zeroed
  u32 string_bytes(u64 from, u32 limit) const;  // length with the NUL; 0: unreadable; limit + 1: no NUL within limit
};

// interpret.cpp. How far the data of the object with this number lies above its link-time addresses. False: it is not mapped.
bool bias_of_object(const ProcessBlock& block, const Reader& reader, u32 index, u64& bias);

// thread.cpp. The caller's thread id, from its thread control block; the process id where that cannot be read.
u32 thread_id(ProcessBlock& block, bool may_fault);
// Its thread pointer; 0 before it has one.
u64 thread_pointer();

// points.cpp
const Point* find_point(const ProcessBlock& block, u64 address);
// Of a point in the block's table: its index, and its entry in the table of original text.
u32 index_of(const ProcessBlock& block, const Point& point);
const shared::Undo& undo_of(const ProcessBlock& block, const Point& point);

// mail.cpp. Sends a request to the tool and executes the system calls that the tool commands, until it is done. Bounded. False:
// the tool has not served it. `answer`: what stands in `folder` then.
struct Request {
  shared::MailKind kind;
  u32 tid;
  u64 path, folder;  // see MailSlot
};
bool ask_tool(ProcessBlock& block, AreaHeader* area, const Request& request, u64* answer = nullptr);

// How the two sides wake each other, and how long the agent waits.
struct Line {
  const u32* heartbeat;  // moves while the tool lives
  const u32* wake;       // futex: the tool has said something to a thread that waits on it
  u32* bell;             // futex: a request waits for the tool
  i64 slice_nanoseconds;
  u32 silent_slices, slices;
  i32 lifeline;  // a pipe whose other end the tool holds, -1: none
};
bool is_cut(i32 lifeline);  // no process holds the other end any more
// Publishes the request in the slot.
void say_request(shared::MailSlot& slot, u32 number);
// Executes the tool's commands. True: the tool finished. False: it gave no sign of life (`heartbeat` did not move, the lifeline
// was cut) or was not done after all slices.
bool converse(const Line& line, shared::MailSlot& slot, u32 number);

// For a preloaded agent's session, and for a first program that is not the tool's child: returns when all records so far are in
// the output. Bounded.
void flush_output(ProcessBlock& block);

// The process's own page before the area.
inline shared::Mailbox* mailbox_of(AreaHeader* area) {
  return reinterpret_cast<shared::Mailbox*>(reinterpret_cast<u8*>(area) - shared::kMailboxBytes);
}

template <class T>
T* at_offset(void* base, u64 offset) {
  return reinterpret_cast<T*>(static_cast<u8*>(base) + offset);
}
template <class T>
const T* at_offset(const void* base, u64 offset) {
  return reinterpret_cast<const T*>(static_cast<const u8*>(base) + offset);
}

// The consumers of a point, newest first. Bounded, whatever the block holds.
template <class Visit>
inline void each_consumer(const ProcessBlock& block, const Point& point, const Visit& visit) {
  const auto* consumers = at_offset<shared::Consumer>(&block, block.consumer_offset);
  u32 next = point.consumer;
  for (u32 steps = 0; next != 0 && next <= block.consumer_count && steps < block.consumer_count; ++steps) {
    const shared::Consumer& consumer = consumers[next - 1];
    next = consumer.next;
    visit(consumer);
  }
}

// Copies whole words, the last one too, by a loop that no compiler turns into a string instruction (these depend on DF).
inline void copy_words(void* to, const void* from, u64 bytes) {
  auto* out = static_cast<u64*>(to);
  const auto* in = static_cast<const volatile u64*>(from);
  for (u64 i = 0; i < (bytes + 7) / sizeof *out; ++i) out[i] = in[i];
}

inline AreaHeader* session_area(const ProcessBlock& block, u32 session) {
  if (session >= shared::kMaxSessions) return nullptr;
  return reinterpret_cast<AreaHeader*>(block.sessions[session].area);
}

inline shared::LiveHeader& live_of(AreaHeader* area) { return *at_offset<shared::LiveHeader>(area, area->live_offset); }
// `event_index` < event_count.
inline EventCounts& counts_of(AreaHeader* area, u32 event_index) {
  return at_offset<EventCounts>(area, area->counts_offset)[event_index];
}

inline bool is_recording(const AreaHeader& area) {
  return __atomic_load_n(&area.state, __ATOMIC_RELAXED) == static_cast<u32>(shared::SessionState::recording);
}

inline bool is_recording(const Event& event) {
  return __atomic_load_n(&event.state, __ATOMIC_RELAXED) == static_cast<u32>(shared::SessionState::recording);
}

inline void count(u64& counter) { __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED); }

}  // namespace uprobe::agent
