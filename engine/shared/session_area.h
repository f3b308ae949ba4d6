// SPDX-License-Identifier: MIT
// The session area: records, counts and programs, shared by the tool and the traced processes of one trust domain.
//
// Two files, mapped in one range of addresses in the tool and in every process, after one page of the process's own:
//
//   process  [ Mailbox ]                                              private, empty in a child of fork (mailbox.h)
//   plan     [ AreaHeader | Event[] | Insn[] | Test[] | Trigger[] | Histogram[] | text ]     the tool writes, processes read
//   live     [ LiveHeader | EventCounts[] | HistogramCounts[] | left[] | switches | Ring[] | counts of dropped hits | sums |
//              slots and entries of histograms | scratch ]            all processes of the domain write
//            [ data of ring 0 ][ data of ring 1 ] ...
//
//   memory   base - kMailboxBytes      base    base + live_offset    base + data_offset
//            [ Mailbox             ]   [ plan ][ live, fixed part   ][ data 0 ][ data 0 again ][ data 1 ][ data 1 again ] ...
//
// All places are byte offsets from `base`. Each ring's data is mapped twice in a row, so a record never wraps.
//
// Trust: no value that a process can write is an instruction, an index or a length to another process. Geometry, programs,
// filters, triggers and histogram fields are in the plan, whose file is sealed: no process can write it or map it writable
// (F_SEAL_FUTURE_WRITE; before Linux 5.1 its descriptors are read-only). A reader of the live file loads a value once and
// bounds it by the plan before use: a process that writes nonsense there spoils records and counts of its own domain, and
// nothing else. Each trust domain has its own live file, with the same layout.
//
// Rings are of two kinds, and no ring ever has writers of both.
//
// CPU rings (the first `cpu_ring_count`): threads on CPU N write ring N inside an rseq section (Linux Documentation: rseq(2),
// `struct rseq_cs`), which the kernel restarts when the thread is preempted, moved or signalled. The section sets `begun` and
// `stamp`, builds the record in place at the end of the ring, and its last instruction is the 8-byte store of `commit`. An
// interrupted section leaves only `begun`, which the next writer sets again.
//
// Claimed rings (the others), for threads without rseq and for records that their CPU's ring has no room for (of these each keeps
// an eighth free for the others): a writer claims a ring (cmpxchg of `owner` from 0), sets `stamp`,
// builds the record, and publishes it by one 8-byte store of `commit`. A writer that is killed before the commit leaves `owner`
// and no record. The stamp is taken between claim and commit, so every ring is sorted by time.
//
//   free --cmpxchg--> claimed --stamp--> writing --commit--> committed --owner = 0--> free
//
// The reader may print each record that is older than the minimum over all rings of (writing ? stamp : now). A CPU ring is
// being written if `begun` differs from its number of records, a claimed ring if `owner` is not 0.
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

// AreaHeader::mode. The session belongs to a preloaded agent: the agent asks for a flush before the program ends, and a program
// started by execve makes a session of its own.
inline constexpr u32 kModePreloaded = 1;
// The tool attached to running programs: when it dies, the programs are given back.
inline constexpr u32 kModeAttached = 2;
// The first program is no child of the tool: its agent asks for a flush before it ends.
inline constexpr u32 kModeDaemonize = 4;

// How the tool wakes a waiting thread. A thread that rings by number T (see LiveHeader) sleeps on notice T % kNotices.
struct Notice {
  u32 wake;           // futex: bumped when one of these threads has an answer
  u32 refused;        // the number of a thread for which the tool could do nothing, and
  u32 refused_count;  // how often the tool has refused any of them
  u32 reserved;
};
inline constexpr u32 kNotices = 64;

// Of AreaHeader::tool_life, a robust futex (FUTEX_OWNER_DIED): set by the kernel when the tool has died, by whatever signal; not when it is
// stopped.
inline constexpr u32 kLifeEnded = 0x40000000;

// Part of the plan.
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
  u32 left_offset;    // of a u64 for each trigger: how often it may still act, or kUnlimited
  u32 switch_count;   // 0: no event is ever off
  u32 switch_offset;  // of a u32 for each event, kSwitchOn or kSwitchOff
  u32 histogram_count;
  u32 histogram_offset;
  u32 histogram_counts_offset;  // of HistogramCounts[]
  u32 scratch_offset;           // of kScratchBytes for each ring; only where there are histograms
  // Hits that a filter has dropped: a u64 for each event, in rows that are `dropped_stride` bytes apart, so that CPUs do not
  // share lines. The first `dropped_rows`, one for each CPU, are written inside rseq sections, like CPU rings; as many rows
  // after them by lock add. 0: no event has a filter.
  u32 dropped_rows;
  u32 dropped_offset;
  u32 dropped_stride;
  u32 mode;            // kModePreloaded, kModeAttached, kModeDaemonize
  u32 known_as;        // kModeAttached: the tool's process id, as users know it (of `-P`, the launcher's)
  u64 tick_rate;       // nanoseconds of a tick of the clock, << 32; 0: not known
  u64 name;            // random: no other session has it
  u32 state;           // SessionState; the events' states change with it
  u32 tool_gone;       // 1: the tool has ended, no thread need ask
  u32 tool_heartbeat;  // moves while the tool lives
  u32 flush_begun;     // rounds of printing committed records, begun; agents ask for them
  u32 flush_done;      // futex: the newest round that has ended
  u32 first_process;   // kModeDaemonize: its id
  u32 string_limit;    // characters of a string that are recorded; 0: the kernel's limits of strings and payloads hold
  u32 payload_limit;   // bytes
  u64 patience;        // ticks that a hit waits for room in a full ring; 0: it is lost at once
  u32 sum_count;       // of Event::sum
  u32 sum_rows;        // of each, the one without a CPU included
  u32 sum_offset;      // of SumsHead; the rows follow it
  u32 sum_chunks;      // so many chunks there are
  u32 sum_chunk_offset;  // of the first one
  u32 sum_banks;         // 1: the rows are those of all processes
  u32 sum_bank_offset;   // of SumBank[]
  u32 tool_life;         // the number of a thread of the tool; kLifeEnded: the kernel has seen its end; 0: not known
  u32 reserved[6];
  Notice notices[kNotices];
};
static_assert(sizeof(AreaHeader) == 256 + sizeof(Notice) * kNotices);

// At the beginning of the live file. An agent rings by storing a number in a free bell and bumping `mail_requests`. The tool
// trusts neither and looks into the mailboxes. The number is the thread's; of a process in another PID namespace it is the
// process's number in the tool's namespace, or, with kBellOfChild, that of an ancestor.
inline constexpr u32 kBells = 64, kBellOfChild = 1u << 31;
struct alignas(128) LiveHeader {
  u32 mail_requests;   // futex: bumped by agents when the tool has something to see
  u32 bells_missed;    // not 0: an agent found no bell free
  u32 flush_requests;  // bumped by an agent that waits for another round of printing
  u32 mail_timeouts;   // requests that were not answered
  u64 filtered_execs;  // programs started by execve under a seccomp filter of their parent's own, so not traced
  u64 traced_execs;    // programs started by execve for a tracer within the tree
  u64 unread_signals;  // of kOurSignals, deferred though the program has a signalfd that names them
  u64 reserved0[11];
  u32 bells[kBells];  // 0: free
  u32 tracing;        // the switch of the whole session
  // 1: triggers that change the program act in these processes, since they are the tool's own user's. Written by the tool.
  u32 changes_allowed;
  u32 snapshots;  // bumped by agents: how often triggers have asked the tool to write what it keeps (shared/trigger.h)
  u32 reserved1[29];
};
static_assert(sizeof(LiveHeader) == 512 && offsetof(LiveHeader, tracing) == 384);

// Of Event::flags.
inline constexpr u16 kEventReturns = 1;  // the payload begins with a ReturnHead
inline constexpr u16 kEventNotes = 2;    // the payload needs the entry record
inline constexpr u16 kEventAsksEntry =
    8;  // a filter or trigger test is about the entry record: a record without one is dropped
inline constexpr u16 kEventLooksFirst =
    16;  // one of its triggers has tests, acts after the record, asks for the task's name, or turns
         // a switch in addition to one that is about the record
inline constexpr u16 kEventCounts = 32;       // one adds to a histogram
inline constexpr u16 kEventShowsStack = 128;  // one adds the stack to the record
inline constexpr u16 kEventAtEntry = 64;      // at function entries: (sp) is the return address
inline constexpr u16 kEventActs = 512;        // one changes the program
inline constexpr u16 kEventSelf = 256;        // the payload needs the self time: entries are counted, and calls inside
inline constexpr u16 kEventThins = 1024;  // only some of its hits are recorded: Event::one_in, per_second, min_latency

// One event (one definition).
//
// The table has room for later events. An event that is added while the session records is written whole before `event_count`
// includes it; its number is never used again. A removed event is switched off for good here, so that threads on their way to
// it, in any process, see that.
struct alignas(128) Event {
  u32 first_insn;
  u32 insn_count;
  u32 fixed_bytes;  // payload without dynamic data, PayloadHead included
  u16 type;         // its own index
  u16 flags;
  u32 first_note;              // kEventNotes: the program that makes the entry record
  u32 note_count;              // its instructions
  u32 note_bytes;              // bytes of the entry record, PayloadHead included
  u32 first_test, test_count;  // the filter; 0: none
  u32 first_trigger, trigger_count;
  u32 switch_number;  // kNoSwitch: no switch turns it off
  // kEventThins. Hits that are left out turn no switch and add to no histogram, except those over the rate.
  u32 one_in;      // one of so many calls is recorded, by chance; 0: all. Of a return event: those with an entry record
  u32 per_second;  // so many records a second at most, in each live part; 0: no limit
  u64 min_latency;  // nanoseconds: shorter calls are not recorded, and none without an entry record; 0: no limit
  u32 state;        // SessionState; a hit looks at it first
  u32 sum;  // number + 1 of its sums (call_sums.h): its calls are summed up and, but for its triggers, not recorded; 0: none
  u32 reserved1[14];
};
static_assert(sizeof(Event) == 128 && offsetof(Event, state) == 64);

// Hits of an event = records + the sum of the losses, `disabled` and the hits that were left out + hits that its filter has
// dropped. Written by lock add.
struct alignas(128) EventCounts {
  u64 lost_full;     // no room in the ring
  u64 lost_too_big;  // payload over the limit; by strings in strict sessions only (the kernel drops these silently)
  u64 lost_busy;     // every ring was claimed
  u64 missed;        // returns that could not be led through a stub; not part of the hits
  u64 unavailable;   // times that a trigger asked for the task's name or number and the agent did not know it
  u64 disabled;      // hits while the event or the session was off
  u64 entries;       // kEventSelf: calls that began
  u64 self_unknown;  // kEventSelf: returns whose self time is not known
  u64 overridden;    // calls that have returned at once: the function did not run
  u64 changed;       // hits after which a register had another value
  u64 delayed;       // hits after which the thread has slept
  u64 signalled;     // hits after which a signal was sent
  u64 not_changed;   // times that a trigger was to change the program and could not
  // kEventThins: hits that were left out, by reason
  u64 unsampled;  // Event::one_in
  u64 over_rate;  // Event::per_second
  u64 too_short;  // Event::min_latency
  u64 next_turn;  // of Event::per_second: when the rate is used up to, in nanoseconds of the clock
  u64 untimed;    // Event::sum: returns that are in no bucket
  u64 reserved[14];
};
static_assert(sizeof(EventCounts) == 256);

struct alignas(128) Ring {
  // writer's line
  u64 commit;  // end of the last record, in units of 8 bytes modulo 2^32, << 32 | number of records modulo 2^32
  u64 stamp;   // time stamp of the record under way
  u32 owner;   // claimed ring: the writer that has claimed it, in the form of owner_of() (task_number.h); 0: free
  u32 begun;   // CPU ring: number of records once the one under way is published
  u64 lost;  // hits of all events that could not be recorded on this ring's CPU (lost_*); by lock add. See lost_ring()
  u32 reserved0[24];
  // reader's line
  u32 tail;  // how far the reader has read, in units of 8 bytes modulo 2^32
  u32 reserved1[31];
};
static_assert(sizeof(Ring) == 256);

// The ring that counts what is lost on a CPU: its own; of CPUs without one, a claimed ring.
constexpr u32 lost_ring(const AreaHeader& area, u32 cpu) {
  return cpu < area.cpu_ring_count || area.ring_count == 0 ? cpu : cpu % area.ring_count;
}

inline constexpr u16 kRecordNoClock = 1;    // rdtsc faulted (PR_SET_TSC): `tsc` is 0
inline constexpr u16 kRecordCommLater = 2;  // $comm was not fetched: the reader fills in the 16 bytes
inline constexpr u16 kRecordNoEntry = 4;    // the entry record was missing: values from the function's entry are absent
inline constexpr u16 kRecordStack = 16;     // after the payload and its padding: a StackHead and its data
inline constexpr u16 kRecordChanged = 64;   // a trigger of the event has changed the program at this hit
inline constexpr u16 kRecordJudgeLater =
    8;  // the filter needs the task's name, which was not fetched: the reader runs the filter

// A record: this head, then the payload (PayloadHead, arguments, dynamic data), padded to 8 bytes; then the stack, if there is
// one.
struct RecordHead {
  u32 length;  // bytes of head, payload, padding and stack; a multiple of 8
  u32 number;  // low 32 bits of the ring's record count, from 0
  u64 tsc;
  u32 payload_bytes;  // without the padding
  u16 cpu;
  u16 flags;
};
static_assert(sizeof(RecordHead) == 24);

// The stack of a hit: its callers by frame pointers, and the data by which the reader unwinds it by unwind tables when it
// prints.
//
//   [ StackHead | addresses, u64[frames] | places, u64[frames] | words of the stack, copy_bytes ]
//
// The first address is that of the hit. A place is the address at which the return address lies on the stack; of a frame with a
// frame pointer, the saved one is in the word before it and points to the next frame's. The first place is 0. A return address
// of a stub (return_stub.h) is shown as the address for which the stub stands.
struct StackHead {
  u32 frames;
  u32 copy_bytes;  // a multiple of 8
  u64 copy_begin;  // the address from which the words were copied
  u64 registers[kWalkRegisters];
};
static_assert(sizeof(StackHead) == 152);
inline constexpr u32 kMaxFrames = 64;
inline constexpr u32 kMaxStackCopy = 16384;
inline constexpr u32 kMaxStack = sizeof(StackHead) + 16 * kMaxFrames + kMaxStackCopy;
inline constexpr u32 kMaxRecord = (sizeof(RecordHead) + kMostPayload + 7) / 8 * 8 + kMaxStack;

// No record takes more than a part of its ring: a half without the stack. In the smallest ring that is the kernel's limit.
constexpr u32 payload_limit(u64 ring_bytes) {
  const u64 half = ring_bytes / 2 - sizeof(RecordHead);
  return half < kMostPayload ? static_cast<u32>(half) : kMostPayload;
}
static_assert(payload_limit(kMinRingBytes) == kMaxPayload);
constexpr u32 stack_copy_limit(u64 ring_bytes) {
  return ring_bytes / 4 < kMaxStackCopy ? static_cast<u32>(ring_bytes / 4) & ~7u : kMaxStackCopy;
}

}  // namespace uprobe::shared
