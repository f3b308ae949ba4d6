// What the two worlds have in common, part 3: the session area.
//
// One memfd per session, shared by the tool and by every traced process:
//
//   file   [ AreaHeader | Event[] | Insn[] | Test[] | Trigger[] | switches | text | MailSlot[] | Ring[] | counts of dropped hits |
//            histograms ]
//          [ data of ring 0 ][ data of ring 1 ] ...
//   memory [ the same, `data_offset` bytes                             ][ data 0 ][ data 0 again ][ data 1 ][ data 1 again ] ...
//
// Each ring's data is mapped twice in a row, so a record never wraps. All places are offsets from the start of the mapping.
//
// Rings are of two kinds, and no ring ever has writers of both.
//
// CPU rings (the first `cpu_ring_count`): ring N is written by threads on CPU N, inside an rseq section (Linux
// Documentation: rseq(2), `struct rseq_cs`), which the kernel restarts when the thread is preempted, moved or gets a signal.
// The section announces itself by `begun`, stamps, builds the record in place behind the head, and its last instruction is
// the 8-byte store of `commit`. What interrupts it leaves nothing but `begun`, and that is the next writer's as well.
//
// Claimed rings (the others), for threads without rseq.
// A writer claims a ring (cmpxchg of `owner` from 0 to its thread id), stamps, builds the record in place behind
// the head, and publishes it by ONE 8-byte store of `commit`; then it gives the ring back (owner = 0). A writer that is
// killed in between leaves an owner and nothing else: the record was never committed. Every ring is sorted by time,
// because the stamp is taken between claim and commit.
//
//   free --cmpxchg--> claimed --stamp--> writing --commit--> committed --owner = 0--> free
//
// The reader may pass everything that is older than min over all rings of (writing ? stamp : now), where writing means
// `begun` != number of records for a CPU ring, `owner` != 0 for a claimed one.
#pragma once

#include "engine/shared/event_program.h"
#include "engine/shared/filter.h"
#include "engine/shared/histogram.h"
#include "engine/shared/layout.h"
#include "engine/shared/trigger.h"

namespace uprobe::shared {

inline constexpr u64 kAreaMagic = 0x3161657261707572;  // "uprarea1"
inline constexpr u32 kMaxRings = 256;
inline constexpr u32 kMailSlots = 64;
inline constexpr u32 kMaxEvents = 65535;  // an event's number is a u16
inline constexpr u64 kMinRingBytes = 8192;
inline constexpr u64 kMaxRingBytes = 1ull << 30;

enum class SessionState : u32 { off = 0, recording = 1 };

// AreaHeader::mode. The session belongs to a preloaded agent: it asks for a flush before the program ends, and a program
// that execve starts makes a session of its own.
inline constexpr u32 kModePreloaded = 1;
// It is in programs that ran already, and is taken out of them when its tool has died.
inline constexpr u32 kModeAttached = 2;

struct AreaHeader {
  u64 magic;
  u32 abi_version;
  u32 header_bytes;
  u64 data_offset;  // where ring data starts, in the file and in memory; a multiple of the page size
  u64 ring_bytes;   // data of one ring; a power of two, kMinRingBytes..kMaxRingBytes
  u32 ring_count;
  u32 ring_offset;
  u32 event_count;
  u32 event_offset;
  u32 insn_count;
  u32 insn_offset;
  u32 text_bytes;
  u32 text_offset;
  u32 mail_count;
  u32 mail_offset;
  u32 state;          // SessionState; the tool sets it, and that of the events with it
  u32 mail_requests;  // futex: bumped by the agent with each request
  u32 tool_gone;      // a request ran into its deadline: nobody asks again
  u32 mail_timeouts;
  u32 tool_pulse;      // moves while the tool lives
  u32 mode;            // kModePreloaded, kModeAttached
  u64 filtered_execs;  // programs that execve started under a filter of their parent's own: nobody could be asked
  u32 cpu_ring_count;  // the first so many rings are CPU rings; 0..ring_count
  u32 reserved2;
  u64 traced_execs;    // programs that execve started for a tracer within the tree
  u64 unread_signals;  // of kOurSignals, held though the program has a signalfd that names them
  u64 tick_rate;       // nanoseconds of a tick of the clock, << 32; 0: not known
  u64 name;            // random: no other session has it
  u32 test_count;
  u32 test_offset;
  // Hits that a filter has dropped: a u64 for each event, in rows that are `dropped_stride` bytes apart, so that CPUs do not
  // share lines. The first `dropped_rows`, one of each CPU, are written inside rseq sections, as rings of CPUs are; as many
  // behind them with lock add. 0: no event has a filter.
  u32 dropped_rows;
  u32 dropped_offset;
  u32 dropped_stride;
  u32 trigger_count;
  u32 trigger_offset;
  u32 switch_count;   // 0: no event is ever off
  u32 switch_offset;  // of a u32 for each event, kSwitchOn or kSwitchOff
  u32 tracing;        // the session's own
  u32 histogram_count;
  u32 histogram_offset;
  u32 scratch_offset;  // of kScratchBytes for each ring; only where there are histograms
  u32 known_as;        // kModeAttached: the tool's process id, the front's
  u32 mail_queue;      // threads that wait for a slot; those that were killed meanwhile are still among them
  u32 mail_freed;      // futex: bumped by the agent with each slot that it frees while somebody waits for one
  u64 reserved[4];
};
static_assert(sizeof(AreaHeader) == 240);

// Of Event::flags.
inline constexpr u16 kEventReturns = 1;   // the payload begins with a ReturnHead
inline constexpr u16 kEventNotes = 2;     // and wants what was noted at the entry
inline constexpr u16 kEventAsksEntry =
    8;  // one is about what was noted at the entry: a record that knows nothing of that is dropped
inline constexpr u16 kEventLooksFirst = 16;   // of its triggers one has tests, acts behind the record, asks for the task's name, or turns
                                              // a switch beside one that is about the record
inline constexpr u16 kEventCounts = 32;       // one adds to a histogram
inline constexpr u16 kEventShowsStack = 128;  // one puts the stack behind the record
inline constexpr u16 kEventAtEntry = 64;  // it is where a function begins: the return address is at the stack pointer

// One event (one definition). Hits = records + the sum of the counters. Counters are written by the agent with lock add.
//
// The table has room for events to come. One that joins while the session records is written whole before `event_count` says
// that it is there; its number is never given again. One that is taken away is switched off for good: threads that are on their way
// to it, in whichever process, find that out here.
struct alignas(128) Event {
  u32 first_insn;
  u32 insn_count;
  u32 fixed_bytes;  // payload without dynamic data, PayloadHead included
  u16 type;         // its own index
  u16 flags;
  u64 lost_full;     // no room in the ring
  u64 lost_too_big;  // payload over kMaxPayload (the kernel drops these silently)
  u64 lost_busy;     // every ring was claimed
  u64 missed;        // returns that could not be led through a stub; not among the hits
  u64 undecided;  // times that a trigger asked for the task's name, which may not be fetched
  u64 reserved0;
  u32 state;                   // SessionState; a hit looks at it first. Not beside the counters: these are written
  u32 first_note;              // kEventNotes: the program of the entry
  u32 note_count;              // its instructions
  u32 note_bytes;              // of what it notes, PayloadHead included
  u32 first_test, test_count;  // the filter; 0: none
  u32 first_trigger, trigger_count;
  u32 switch_number;  // kNoSwitch: it is never off by one
  u32 reserved1[5];
  u64 muted;  // hits while the event or the session was off
};
static_assert(sizeof(Event) == 128 && offsetof(Event, state) == 64);

struct alignas(128) Ring {
  // writer's line
  u64 commit;  // end of the last record, in units of 8 bytes modulo 2^32, << 32 | number of records modulo 2^32
  u64 stamp;   // time stamp of the record under way
  u32 owner;   // claimed ring: thread id of the writer that has it, 0: free
  u32 begun;   // CPU ring: number of records once the one under way is published
  u32 reserved0[26];
  // reader's line
  u32 tail;  // how far the reader has come, in units of 8 bytes modulo 2^32
  u32 reserved1[31];
};
static_assert(sizeof(Ring) == 256);

inline constexpr u16 kRecordNoClock = 1;    // rdtsc faulted (PR_SET_TSC): `tsc` is 0
inline constexpr u16 kRecordCommLater = 2;  // $comm was not fetched: the reader fills the 16 bytes in
inline constexpr u16 kRecordNoEntry = 4;  // nothing is known of the function's entry: what comes from there is missing
inline constexpr u16 kRecordStack = 16;   // behind the payload and its padding: a StackHead and what follows it
inline constexpr u16 kRecordJudgeLater =
    8;  // the filter wants the task's name, which was not fetched: the reader runs it

// A record: this head, then the payload (PayloadHead, arguments, dynamic data), padded to 8 bytes; then the stack, if there is one.
struct RecordHead {
  u32 length;  // bytes, all of that; a multiple of 8
  u32 number;  // low 32 bits of the ring's record count, from 0
  u64 tsc;
  u32 payload_bytes;  // without the padding
  u16 cpu;
  u16 flags;
};
static_assert(sizeof(RecordHead) == 24);

// The stack of a hit: who called by frame pointers, and what it takes to find out by unwind tables when it is printed.
//
//   [ StackHead | addresses, u64[frames] | places, u64[frames] | words of the stack, copy_bytes ]
//
// The first address is that of the hit. A place is where the return address lies on the stack; for a frame with a link, the link
// is in front of it, and leads to in front of the next one's. Of the first the place is 0. Return addresses that lead to a stub
// (return_stub.h) are shown as what they stand for.
struct StackHead {
  u32 frames;
  u32 copy_bytes;  // a multiple of 8
  u64 copy_begin;  // where they are from
  u64 registers[kWalkRegisters];
};
static_assert(sizeof(StackHead) == 152);
inline constexpr u32 kMaxFrames = 64;
inline constexpr u32 kMaxStackCopy = 16384;
inline constexpr u32 kMaxStack = sizeof(StackHead) + 16 * kMaxFrames + kMaxStackCopy;
inline constexpr u32 kMaxRecord = (sizeof(RecordHead) + kMaxPayload + 7) / 8 * 8 + kMaxStack;

// No record takes more than a part of its ring.
constexpr u32 stack_copy_limit(u64 ring_bytes) {
  return ring_bytes / 4 < kMaxStackCopy ? static_cast<u32>(ring_bytes / 4) & ~7u : kMaxStackCopy;
}

// A command number that is no system call: call the function whose address is command[1] (no arguments), result = rax.
inline constexpr u64 kCallFunction = ~u64{0};

// A mail slot: how the agent asks the tool for work while one of the target's threads waits.
//   free -> claimed -> request -> working -> (command -> result)* -> done -> free
// `state` is a futex word. The agent makes `request`, `result` and, past its deadline, `abandoned` (the tool then frees the
// slot); the tool the others but `free` and `claimed`.
enum class MailState : u32 { free, claimed, request, working, command, result, done, abandoned };
// exec_begins: the thread is about to call execve; the tool seizes it. exec_failed: the call came back. flush: done once
// everything that was recorded before is in the output. code_mapped: what was in a range of addresses is gone, and code of a
// file may be there. leave_me: the asker is about to be traced by somebody else; its breakpoints come out, for good; path = 1
// if the handlers are its own. leave_one: the same for the process with the thread that the asker calls `path`.
enum class MailKind : u32 {
  none,
  libraries_changed,
  exec_begins,
  exec_failed,
  flush,
  code_mapped,
  leave_me,
  leave_one,
  code_writable  // is about to be: [path, folder)
};

struct alignas(128) MailSlot {
  u32 state;
  u32 kind;
  u32 tid;  // the waiting thread, as its thread control block says
  u32 reserved0;
  u64 block;       // address of the process block in the asking process
  u64 command[7];  // a system call for the agent to execute: number, six arguments; or kCallFunction
  u64 result;
  u64 path;    // exec_begins: address of the path in the asking process; code_mapped: first address
  u64 folder;  // exec_begins: descriptor that the path is relative to (AT_FDCWD: the working directory); code_mapped: end
  u64 token;  // also in the asking process's block: shows who asks
  u64 reserved[2];
};
static_assert(sizeof(MailSlot) == 128);

}  // namespace uprobe::shared
