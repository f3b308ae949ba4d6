// SPDX-License-Identifier: MIT
// What the two worlds have in common, part 3: the session area.
//
// One range of addresses in the tool and in every traced process, made of two files, and one page in front of it that is the
// process's own (engine/shared/mailbox.h):
//
//   process  [ Mailbox ]                                                                     private, gone in a child of fork
//   plan     [ AreaHeader | Event[] | Insn[] | Test[] | Trigger[] | Histogram[] | text ]     the tool writes, processes read
//   live     [ LiveHeader | EventCounts[] | HistogramCounts[] | left[] | switches | Ring[] | counts of dropped hits |
//              slots and entries of histograms | scratch ]                                   all of its processes write
//            [ data of ring 0 ][ data of ring 1 ] ...
//
//   memory   base - kMailboxBytes      base    base + live_offset    base + data_offset
//            [ Mailbox             ]   [ plan ][ live, fixed part   ][ data 0 ][ data 0 again ][ data 1 ][ data 1 again ] ...
//
// The rule of trust: what a process can write is never an instruction, an index or a length to anybody else. Geometry, programs,
// filters, triggers and histograms' fields are in the plan, whose file is sealed: no process can write it or map it writable
// (F_SEAL_FUTURE_WRITE; before Linux 5.1 its descriptors are read-only). What is read from the live file is a value, which is
// loaded once and bounded by the plan before it leads anywhere: a process that writes nonsense there spoils records and counts of
// those that share the file with it, and nothing else. There may be several live files with the same layout; a process maps one.
//
// Each ring's data is mapped twice in a row, so a record never wraps. All places are offsets from `base`.
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

inline constexpr u64 kAreaMagic = 0x3261657261707572;  // "uprarea2"
inline constexpr u32 kMaxRings = 256;
inline constexpr u32 kMaxEvents = 65535;  // an event's number is a u16
inline constexpr u64 kMinRingBytes = 8192;
inline constexpr u64 kMaxRingBytes = 1ull << 30;

enum class SessionState : u32 { off = 0, recording = 1 };

// AreaHeader::mode. The session belongs to a preloaded agent: it asks for a flush before the program ends, and a program
// that execve starts makes a session of its own.
inline constexpr u32 kModePreloaded = 1;
// It is in programs that ran already, and is taken out of them when its tool has died.
inline constexpr u32 kModeAttached = 2;
// Its first program is no child of the tool: it asks for a flush before it ends.
inline constexpr u32 kModeDaemonize = 4;

// How the tool tells a thread that waits. One that rings by T (see LiveHeader) sleeps on number T % kNotices.
struct Notice {
  u32 wake;           // futex: bumped when something has been said to one of these threads
  u32 refused;        // what one rings by that nothing can be done for, and
  u32 refused_count;  // how often that was said of any of them
  u32 reserved;
};
inline constexpr u32 kNotices = 64;

// The plan's.
struct AreaHeader {
  u64 magic;
  u32 abi_version;
  u32 header_bytes;
  u64 live_offset;  // where the live file begins; a multiple of the page size
  u64 data_offset;  // where ring data starts; a multiple of the page size. In the live file: data_offset - live_offset
  u64 ring_bytes;   // data of one ring; a power of two, kMinRingBytes..kMaxRingBytes
  u32 ring_count;
  u32 ring_offset;
  u32 cpu_ring_count;  // the first so many rings are CPU rings; 0..ring_count
  u32 event_count;
  u32 event_offset;
  u32 counts_offset;  // of EventCounts[], one for each event
  u32 insn_count;
  u32 insn_offset;
  u32 test_count;
  u32 test_offset;
  u32 text_bytes;
  u32 text_offset;
  u32 trigger_count;
  u32 trigger_offset;
  u32 left_offset;    // of a u64 for each trigger: how often it may still act; kUnlimited
  u32 switch_count;   // 0: no event is ever off
  u32 switch_offset;  // of a u32 for each event, kSwitchOn or kSwitchOff
  u32 histogram_count;
  u32 histogram_offset;
  u32 histogram_counts_offset;  // of HistogramCounts[]
  u32 scratch_offset;           // of kScratchBytes for each ring; only where there are histograms
  // Hits that a filter has dropped: a u64 for each event, in rows that are `dropped_stride` bytes apart, so that CPUs do not
  // share lines. The first `dropped_rows`, one of each CPU, are written inside rseq sections, as rings of CPUs are; as many
  // behind them with lock add. 0: no event has a filter.
  u32 dropped_rows;
  u32 dropped_offset;
  u32 dropped_stride;
  u32 mode;            // kModePreloaded, kModeAttached, kModeDaemonize
  u32 known_as;        // kModeAttached: the tool's process id, the front's
  u64 tick_rate;       // nanoseconds of a tick of the clock, << 32; 0: not known
  u64 name;            // random: no other session has it
  u32 state;           // SessionState; that of the events goes with it
  u32 tool_gone;       // nobody need ask any more
  u32 tool_heartbeat;  // moves while the tool lives
  u32 flush_begun;     // rounds of printing what is committed, which agents ask for
  u32 flush_done;      // futex: the newest round that is over
  u32 first_process;   // kModeDaemonize: its id
  u32 reserved[18];
  Notice notices[kNotices];
};
static_assert(sizeof(AreaHeader) == 256 + sizeof(Notice) * kNotices);

// At the beginning of the live file. An agent rings by a number in a free bell and by `mail_requests`; the tool believes neither, and
// finds out by itself who has a request in its mailbox. The number is its thread's; in another PID namespace than the tool's that of
// its process in the tool's, or with kBellOfChild that of a process that it is a child of.
inline constexpr u32 kBells = 64, kBellOfChild = 1u << 31;
struct alignas(128) LiveHeader {
  u32 mail_requests;   // futex: bumped by agents when there is something for the tool to see
  u32 bells_missed;    // not 0: an agent found no bell free
  u32 flush_requests;  // bumped by an agent that waits for a further round of printing
  u32 mail_timeouts;   // requests that were not answered
  u64 filtered_execs;  // programs that execve started under a filter of their parent's own: nobody could be asked
  u64 traced_execs;    // programs that execve started for a tracer within the tree
  u64 unread_signals;  // of kOurSignals, held though the program has a signalfd that names them
  u64 reserved0[11];
  u32 bells[kBells];  // 0: free
  u32 tracing;        // the switch of the whole session
  u32 reserved1[31];
};
static_assert(sizeof(LiveHeader) == 512 && offsetof(LiveHeader, tracing) == 384);

// Of Event::flags.
inline constexpr u16 kEventReturns = 1;  // the payload begins with a ReturnHead
inline constexpr u16 kEventNotes = 2;    // and wants what was noted at the entry
inline constexpr u16 kEventAsksEntry =
    8;  // one is about what was noted at the entry: a record that knows nothing of that is dropped
inline constexpr u16 kEventLooksFirst =
    16;  // of its triggers one has tests, acts behind the record, asks for the task's name, or turns
         // a switch beside one that is about the record
inline constexpr u16 kEventCounts = 32;       // one adds to a histogram
inline constexpr u16 kEventShowsStack = 128;  // one puts the stack behind the record
inline constexpr u16 kEventAtEntry = 64;  // it is where a function begins: the return address is at the stack pointer

// One event (one definition).
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
  u32 first_note;              // kEventNotes: the program of the entry
  u32 note_count;              // its instructions
  u32 note_bytes;              // of what it notes, PayloadHead included
  u32 first_test, test_count;  // the filter; 0: none
  u32 first_trigger, trigger_count;
  u32 switch_number;  // kNoSwitch: it is never off by one
  u64 reserved0[2];
  u32 state;  // SessionState; a hit looks at it first
  u32 reserved1[15];
};
static_assert(sizeof(Event) == 128 && offsetof(Event, state) == 64);

// Hits of an event = records + the sum of these and of what its filter has dropped. Written with lock add.
struct alignas(128) EventCounts {
  u64 lost_full;     // no room in the ring
  u64 lost_too_big;  // payload over kMaxPayload (the kernel drops these silently)
  u64 lost_busy;     // every ring was claimed
  u64 missed;        // returns that could not be led through a stub; not among the hits
  u64 unavailable;   // times that a trigger asked for the task's name or number, which is not known there
  u64 disabled;      // hits while the event or the session was off
  u64 reserved[10];
};
static_assert(sizeof(EventCounts) == sizeof(Event));

struct alignas(128) Ring {
  // writer's line
  u64 commit;  // end of the last record, in units of 8 bytes modulo 2^32, << 32 | number of records modulo 2^32
  u64 stamp;   // time stamp of the record under way
  u32 owner;   // claimed ring: of the writer that has it, as owner_of() says (task_number.h), 0: free
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

}  // namespace uprobe::shared
