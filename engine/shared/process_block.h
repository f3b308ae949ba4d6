// SPDX-License-Identifier: MIT
// The process block: the tables by which the agent of one traced process finds its probe points and their consumers.
//
//   [ ProcessBlock | Point[] | Undo[] | Consumer[] | hash u32[] | ThreadEntry[] | CodeFile[] | UnwindRow[] ]
//     (in any order, see *_offset)
//
//   address --hash--> Point[i] --consumer--> Consumer --next--> older Consumer ...
//                     Undo[i]                `--> event `event` of session `session`
//
// Private memory of the process: no other process maps it, and fork copies it. The tool writes it by /proc/PID/mem, the agent
// reads it at each hit. The fields before `flags` are the tool's; from `flags` on, and in ThreadEntry[], they are the agent's,
// and the tool writes them once, before the agent runs.
//
// To publish a point the tool writes Point, consumers and Undo, then the hash entry, then the text. A point is never removed: a
// disarmed one stays in the tables, so that a thread that has already trapped still finds its copy. Undo and the fields up to
// `undo_count` are frozen for all versions: any later tool can restore the text that an earlier one has changed.
//
// Addresses are those of the process. An index + 1 uses 0 for "none". Offsets are bytes from the start of the block.
// Trust: the process can write all of this. The tool checks each count and offset before it uses it (process/block_check.cpp).
#pragma once

#include "arch/shared/kernel.h"
#include "arch/shared/text.h"
#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u64 kBlockMagic = 0x316b6c6270727075;  // "uprpblk1"
inline constexpr u32 kMaxSessions = 8;

// watched: a hardware breakpoint of the tool stands for the point, in code that the program generates as it runs. No byte of the
// text is changed, there is no copy, and insn_bytes says how many bytes are known in Undo::original: where memory has others, the
// code is no longer the one that the point was made for.
enum class PointState : u32 { armed = 1, disarmed = 2, unmapped = 3, watched = 4 };
// What the agent does at a point besides calling its consumers.
// probe: nothing. library_hook: it asks the tool about libraries. system_call: it may make the call itself.
// open_call: it may make the open or openat that follows; the point is at the last instruction before that call, which loads a
// number (arch/entry). quick_call: the same before a call that changes signals or mappings; the call itself is a point too, for
// other ways to it, and for a thread that comes here while no jump stands here. find_object, iterate_objects: the first instruction of _dl_find_object and dl_iterate_phdr, by which
// unwinders ask for the object that holds an address. ..._return: the instruction after clone, clone3, vfork or fork, where a
// child may run on its parent's thread control block.
enum class PointRole : u32 {
  probe = 0,
  library_hook = 1,
  system_call = 2,
  clone_return = 3,
  clone3_return = 4,
  vfork_return = 5,
  fork_return = 6,
  open_call = 7,
  find_object = 8,
  iterate_objects = 9,
  quick_call = 10,
};
constexpr bool is_before_call(PointRole role) { return role == PointRole::open_call || role == PointRole::quick_call; }

// The place in the program that corresponds to a place in a copy, valid from `offset` up to the next mark: Point::address +
// place (place 0: before the probed instruction). There the program's stack pointer would be higher by `pushed`.
struct Mark {
  u8 offset;  // in the copy, rising from 0
  u8 pushed;
  u16 after_call;  // 1: after a system call, which has left the copy's address in a register
  i32 place;
};
static_assert(sizeof(Mark) == 8);

struct Point {
  u64 address;  // of the probed instruction in this process
  u64 copy;  // where the displaced instructions run; they end with a jump back. marks_of() finds the marks, after them
  u64 file_bias;  // address - file offset, for @+OFF
  u64 jump_to;    // target of the jump at `address`; 0: there is no jump
  u32 state;      // PointState
  u32 role;       // PointRole
  u32 consumer;   // index + 1 of the first consumer (the newest), 0: none
  u32 copy_bytes;
  u8 insn_bytes;  // length of the probed instruction
  u8 code_bytes;  // of all displaced instructions: more than one if a jump needed their room
  u8 jump_bytes;  // kJumpBytes or kShortJumpBytes; 0: a breakpoint
  u8 mark_count;
  u8 following_bytes;  // so many bytes after the first are known from the file; see Undo
  u8 prefix_window;  // not 0: the text at `address` is not patched; it lies in a jump that begins so many bytes before it
  u16 following_varies;  // bit i: a neighbour's jump changes or has changed the byte at address + i + 1
};
static_assert(sizeof(Point) == 56);

// The second half of a short jump, in the padding. A thread that has executed the first half may be preempted before the second
// for any length of time: the padding must not come back.
constexpr bool is_long_jump(const Point& point) {
  return point.jump_bytes == kJumpBytes && point.copy == point.jump_to && point.mark_count == 0;
}
// The prefix window of a place that has too little room for a jump: threads reach the place through the instructions before it.
// This point has no consumers. Its jump (for a moment a breakpoint) stands at the window's beginning; its copy holds the
// window's instructions and goes on in the thunk of the place. The point of the place has no text of its own: see
// Point::prefix_window.
constexpr bool is_prefix_window(const Point& point) {
  return point.jump_bytes == kJumpBytes && point.copy == point.jump_to && point.mark_count != 0;
}
// A thunk stands before the copy.
constexpr bool has_thunk(const Point& point) {
  return point.prefix_window != 0 || (point.jump_bytes != 0 && point.copy != point.jump_to);
}
// A jump at a probe point or a prefix window, armed.
constexpr bool is_armed_jump(const Point& point) {
  return point.jump_bytes != 0 && !is_long_jump(point) && point.state == static_cast<u32>(PointState::armed);
}

// The marks follow the copy in the island.
constexpr u64 marks_of(const Point& point) { return (point.copy + point.copy_bytes + 7) & ~u64{7}; }

// The bytes at an armed point.
struct ArmedText {
  u8 bytes[kJumpBytes];
  u32 length;
};
constexpr ArmedText armed_text(const Point& point) {
  ArmedText text{{kBreakpoint}, 1};
  if (point.jump_bytes == 0) return text;
  text.length = point.jump_bytes;
  put_jump(text.bytes, text.length, point.address, point.jump_to);
  return text;
}

// When a consumer counts a hit. entry: at the point, with the registers before its instruction. exit: where a function is left,
// by a return or a jump; the point is at that instruction or before it, and the registers are those after the return. note: at
// the entry of a function, to keep an entry record for an event at its exits. stub: at the entry of a function, to count its
// return, which a stub reports.
enum class ConsumerKind : u8 { entry, exit, stub, note };

struct Consumer {
  u8 session;    // index into ProcessBlock::sessions
  u8 kind;       // ConsumerKind
  u16 event;     // index into that session's event table
  u32 next;      // index + 1 of the next older consumer, 0: last
  i32 distance;  // exit: from the function's first instruction to the point
  u16 pops;      // exit: bytes that the return takes from the stack, the return address included
  u16 lead;      // exit: bytes that the instructions before the return take first
  u32 restored;  // exit: which words of the stack those instructions load into which registers; see restored_at()
};
static_assert(sizeof(Consumer) == 20);

// Consumer::restored has five bits for each of kKeptRegisters: which word of the stack it is loaded from, counted from 1; 0: it
// keeps its value.
inline constexpr u32 kRestoredBits = 5, kMostRestored = 31;
constexpr u32 restored_at(u32 restored, u32 index) { return restored >> (kRestoredBits * index) & kMostRestored; }

// Frozen for ever: any later tool restores the text from these entries.
struct Undo {
  u64 address;
  u32 length;  // bytes patched, <= 16
  u32 state;   // 0 restored, 1 patched
  u8 original
      [16];  // bytes before the patch; of the others Point::following_bytes tell later whether it is the same code
};
static_assert(sizeof(Undo) == 32);
inline constexpr u32 kMostFollowing = sizeof(Undo::original) - 1;

// Whether the memory after the first byte of an armed point is as it was. Any byte may have become a breakpoint, but not all
// of them; the bytes of the point's own jump may be the original ones for a moment.
constexpr bool is_as_before(const Point& point, const Undo& undo, const u8* after) {
  const ArmedText armed = armed_text(point);
  u32 equal = 0, known = 0;
  for (u32 i = 0; i < point.following_bytes && i < kMostFollowing; ++i) {
    if ((point.following_varies >> i & 1) != 0) continue;
    const bool ours = i + 1 < armed.length && after[i] == armed.bytes[i + 1];
    const bool same = ours || after[i] == undo.original[i + 1];
    ++known;
    equal += same ? 1 : 0;
    if (!same && after[i] != kBreakpoint) return false;
  }
  return equal != 0 || known == 0;
}

// Executable pages of the tool in the process, for displaced copies: [base, base + bytes), used from the start.
struct Island {
  u64 base;
  u32 bytes;
  u32 used;
};
inline constexpr u32 kMaxIslands = 64;

// Mapped code that may have jumps; 0, 0: none.
struct JumpRange {
  u64 begin, end;
};
inline constexpr u32 kJumpRanges = 16;

// A restartable sequence (rseq) that the process has shown and that no file shows: the kernel has moved a thread from a
// breakpoint to the abort handler at `abort`. How much is barred: sequence: [begin, end), by a descriptor in the process's
// memory. functions: a function that holds the handler or that it leads to. object: all code of the handler's file. process:
// all code.
enum class BarredStep : u32 { sequence = 1, functions, object, process };
// No probe is armed in [begin, end) of the file, nor in the four bytes before `abort`, which the kernel reads.
struct BarredCode {
  u64 begin, end;
  u64 abort;          // 0: the entry is free
  u64 device, inode;  // as in /proc/PID/maps; 0, 0: of any file
  u32 step;           // BarredStep
  u32 late;           // threads that may still arrive, having trapped before the breakpoints were removed
};
static_assert(sizeof(BarredCode) == 48);
inline constexpr u32 kBarredCodes = 16;

// Mapped code of a file, [begin, end), and the address of its .eh_frame_hdr; 0: it has none. Filled in only for sessions with
// return stubs, or with stacks that the agent unwinds.
struct CodeFile {
  u64 begin, end;
  u64 unwind_header;
};
inline constexpr u32 kCodeFiles = 1024;

// How the agent unwinds at one place in the code (preload/unwind_rules.h): kept by it, for itself, in a table with a place for each
// hash of an address. `check` is made of the rule, the address and what else the rule depends on, so that an entry that is half
// written, or of other code, is none. The tool writes nothing there.
struct UnwindRow {
  u64 check, rule;
};
inline constexpr u32 kUnwindRows = 4096;  // a power of two

// A file that events read data of. Its addresses in this process are `bias` above its link-time addresses. It may be unmapped
// before the tool knows: the word at `sentinel_at` is then no longer `sentinel`, and the agent reads none of its data.
struct MappedObject {
  u64 bias;
  u64 sentinel_at;  // 0: not mapped, or its data cannot be located for certain. Written last, and cleared before a change
  u64 sentinel;
};
inline constexpr u32 kMappedObjects = 32;

// A semaphore of a marker (USDT): a u16 in the program's data that it looks at before it makes the marker's arguments. The tool
// counts it up while the session wants the marker, and down afterwards; the agent counts it down where the tool is gone. The entry
// changes before the semaphore goes up, and after it has gone down.
struct Semaphore {
  u64 address;  // 0: the entry is free
  u32 is_up;
  u32 reserved;
};
inline constexpr u32 kSemaphores = 512;
inline constexpr u32 kMostCounted = 0x7fff;  // the kernel takes a semaphore for a signed number

struct SessionLink {
  u64 area;  // address of the session area in this process, 0: none
};

// The disposition of a signal that the application has set (as struct KernelSigaction).
struct AppAction {
  u64 handler;  // 0 SIG_DFL, 1 SIG_IGN
  u64 flags;
  u64 restorer;
  u64 mask;
};

enum class AppSignal : u32 { trap, segv, bus, fpe, ill };
inline constexpr u32 kAppSignals = 5;
static_assert(sizeof kFaultSignalNumbers == kAppSignals * sizeof(u32));  // in this order

// The other signals have their dispositions in the kernel, but with the agent's handler in place of this one.
struct OtherAction {
  u64 handler;  // 0 SIG_DFL, 1 SIG_IGN
  u64 flags;
};
inline constexpr u32 kSignals = 64;

// A thread: its virtual signal mask for SIGTRAP, SIGSEGV and SIGBUS (the kernel never blocks them), the child that uses its
// control block, its deferred signals, its alternate stacks.
struct ThreadEntry {
  u64 thread;           // its thread pointer, 0: free
  u64 blocked;          // the virtual mask, bits as in a sigset
  u32 borrower;         // id of a child that runs with this control block though the block is not its own, 0: none
  u32 shares;           // 1: the borrower runs in its parent's memory; kParentWaits: the same, and the parent waits
  u64 parents_blocked;  // the parent's virtual mask when the borrower began
  u64 waits;            // bits of kOurSignals for which a sigtimedwait under way waits
  u32 pending;          // index + 1 of the newest PendingSignal of this thread, 0: none
  u32 attention;        // not 0: a signal has come, so a system call that is about to be made must not sleep
  u64 cleared;          // a clone3 under way has CLONE_CLEAR_SIGHAND: the child is to have no handlers
  u64 own_stack;  // the agent's, which the kernel has as this thread's alternate signal stack; 0: none. The bits below
                  // a page count the threads that have had it with this control block
  u64 app_stack, app_stack_size;  // the application's (stack_t); size 0: disabled
  u32 app_stack_flags;
  u32 id;              // of the thread to which own_stack was given
  u64 clone_flags;     // of a clone3 under way, with kCloneUnderWay; 0: none
  u16 traced_at_exec;  // 1: has asked to be traced by its parent, from its next program on
  u16 beside;  // 1: a borrower runs, or ran, at the same time as its parent: only the thread itself can tell which one it is
  u16 steps;      // through copies, by the agent's trap flag, that have not been reported yet; see preload/steps.cpp
  u16 step_kind;  // of the newest step
  u32 goes_by_parent;  // 1: the borrower is in another PID namespace than its parent, and its records have the parent's number
  u32 reserved;
  u64 jump_stack;  // where switches lead (arch/shared/trampoline_frame.h); 0: none yet. kJumpStackTaken: and none any more
};
inline constexpr u64 kCloneUnderWay = u64{1} << 63;
inline constexpr u32 kParentWaits = 2;
inline constexpr u64 kJumpStackTaken = 1;
static_assert(sizeof(ThreadEntry) == 120);

// A deferred signal of a thread that was in the agent when it came: its handler runs when the thread leaves the agent.
struct PendingSignal {
  u32 taken;
  u32 next;      // index + 1 of the signal before it, 0: none
  u64 handler;   // the application's
  u64 flags;     // its sa_flags
  u64 restorer;  // the address to which it returns
  u64 mask;      // the mask when the signal came, in force again after the handler
  u8 info[128];  // siginfo
};
inline constexpr u32 kPendingSignals = 256;  // one thread may get all 64 kinds at once

// One of kOurSignals, sent while the receiver's virtual mask blocks it: kept until it may arrive.
struct DeferredSignal {
  u32 state;  // 0 free, 1 being written, 2 there
  u32 signal;
  u64 thread;  // thread pointer of the receiver, 0: any thread of the process
  u8 info[128];
};
inline constexpr u32 kDeferredSignals = 16;

// A re-execution: a thread will execute the instruction at `address` once more though its hit is recorded. A signal came while
// the thread was in the copy, before the instruction, and its handler was shown the original address.
struct Repeat {
  u64 thread;  // thread pointer, 0: free
  u64 address;
  // 0: the thread is on its way there. Even: address of the handler's signal frame, still in use. Odd: the agent will not see
  // the handler return; the stack pointer of the thread, | 1.
  u64 frame;
  u64 state;  // digest of the registers
};
inline constexpr u32 kRepeats = 64;

inline constexpr u32 kThreadEntries = 4096;
inline constexpr u64 kOurSignals = 1ull << (5 - 1) | 1ull << (7 - 1) | 1ull << (11 - 1);  // TRAP, BUS, SEGV

// Address ranges that may hold private mappings of files that are not executable yet: page number of the begin | count of pages
// << 36; 0: free. One word, so that threads change it without a lock.
inline constexpr u32 kFileRanges = 256;
inline constexpr u32 kRangeBeginBits = 36;

inline constexpr u32 kBlockFiltered = 1;  // a seccomp filter is or may come into force: no system call, even for $comm
inline constexpr u32 kBlockFilteredLater =
    2;  // it came after the agent: it may forbid calls that the agent made before
inline constexpr u32 kBlockReadsThreadPointer = 4;  // the agent may read it by an instruction (arch/abi/processor.h)
inline constexpr u32 kBlockLeadsBack = 8;           // the agent's visible restorer faults when it is executed
inline constexpr u32 kBlockLedBack = 16;            // a handler has been given it to return to
inline constexpr u32 kBlockHasStubs = 32;           // functions return through stubs, now or later
inline constexpr u32 kBlockAttached =
    64;  // the program was running already: it may be in handlers that the agent has not seen begin
inline constexpr u32 kBlockElsewhere =
    128;  // it began in another PID namespace than the tool's: its bodies add the TaskWords
inline constexpr u32 kBlockFiltersKnown =
    512;  // the filters in force, if any, allow what the tool makes the process do; the agent has seen none come since
inline constexpr u32 kBlockMovedAway =
    256;  // its PID namespace is not that of the process that forked it: its bodies do not record

inline constexpr i64 kRseqBias = i64{1} << 31;
inline constexpr u32 kBorrowedBits = 40;
inline constexpr i64 kBorrowedStep = i64{1} << kBorrowedBits;
// Of ProcessBlock::own_rseq.
constexpr i64 borrowers(i64 own_rseq) { return -(own_rseq >> kBorrowedBits); }

// Of ProcessBlock::left: the breakpoints are removed for good. While the process is leaving, all threads are stopped but for
// moments in which one of them comes out of the agent, which still knows their masks; it stays so where the agent's own breakpoints
// could not be removed.
inline constexpr u32 kLeft = 1, kLeaving = 2;

struct ProcessBlock {
  u64 magic;
  u32 abi_version;
  u32 block_bytes;
  u32 undo_offset;  // frozen: magic .. undo_count stay at these places
  u32 undo_count;

  u32 pid;            // of the process that was loaded, in its own PID namespace; a forked child has its parent's
  u32 thread_offset;  // of the table of threads, which is the agent's own
  u32 point_count;
  u32 point_capacity;
  u32 point_offset;
  u32 consumer_count;
  u32 consumer_capacity;
  u32 consumer_offset;
  u32 hash_bits;  // the hash has 1 << hash_bits entries: index of a point + 1, 0: empty
  u32 hash_offset;
  u32 undo_capacity;
  u32 session_count;
  u32 island_count;
  u32 unbound;  // 1: a probed IFUNC has not been resolved yet
  u64 agent_base;
  SessionLink sessions[kMaxSessions];
  Island islands[kMaxIslands];
  u64 stamp;  // a random generation number of the tables, new before each change: fork copies it with them
  u64 agent_text, agent_text_end;  // in this process; 0: not known, then no address counts as the agent's code
  u32 left;                        // kLeft, kLeaving; 0: breakpoints come and go
  u32 no_stubs;                    // 1: an unwinder is loaded that cannot find its way through return stubs
  u64 jump_entry;                  // where trampolines go with hits that they do not record themselves
  u64 changer;                     // process id of a tool that is changing armed text, 0: none
  u32 code_file_offset;            // of CodeFile[kCodeFiles]
  u32 code_file_count;
  u32 any_caller;  // 1: stubs also for callers without unwind information
  // At so many library hooks the agent need not ask. The loader of a new program has two before the program begins: with nothing
  // mapped yet, and when all is relocated; its own calls of mmap have shown the tool all code by then.
  u32 quiet_hooks;
  u64 stack_end;      // of the first thread's stack; 0: not known
  u32 unwind_offset;  // of UnwindRow[kUnwindRows]; 0: there is none, and the agent does not unwind
  u32 code_changes;   // how often the list of code files has changed
  u64 reserved2[6];
  MappedObject objects[kMappedObjects];  // Op::load_object names them
  JumpRange jump_ranges[kJumpRanges];
  BarredCode barred[kBarredCodes];

  // From here on the fields are the agent's: the tool writes them once, before the agent runs.
  u32 flags;       // kBlockFiltered, ...
  i32 tid_offset;  // of the thread id in the thread control block, from the thread pointer; 0: not known yet
  // Positive exactly if a thread's rseq area is its own and a body knows what to write, which is all that bodies test. It is
  // rseq_offset + kRseqBias when that and tid_offset are known, else 0; less kBorrowedStep for each control block that has a
  // borrower, or had one at the same time as its owner, and once more with kBlockMovedAway.
  i64 own_rseq;
  i32 rseq_offset;      // of libc's struct rseq, from the thread pointer; 0: none, or not known yet
  u32 segv_stays_open;  // 1: the program's SIGSEGV handler runs with SIGSEGV deliverable
  AppAction actions[kAppSignals];
  u64 start_blocked;  // of kOurSignals, blocked when the program started: the virtual mask of a thread without an entry
  OtherAction others[kSignals + 1];
  u8 masked_in[72];  // per signal: which of kOurSignals its sa_mask names (bit 0 TRAP, 1 SEGV, 2 BUS)
  u32 tool_gone;     // 1: a request ran into its deadline; no thread asks again
  u32 own_process;   // this process in its own PID namespace, if it has another number in the tool's; 0: not known
  u32 process_word, thread_word;  // TaskWords
  u32 ends;                       // 1: it is about to end, and waits until its trace is complete
  u32 alone;                      // 1: a thread removes breakpoints by itself, since the tool is gone
  u64 file_ranges[kFileRanges];
  u32 repeat_count;
  u32 deferred_count;
  u32 stack_cursor;   // of the search for stacks of ended threads
  u32 by_descriptor;  // of kOurSignals, named by a signalfd of the program
  u32 hook_hits;      // of library hooks, up to quiet_hooks
  u32 code_shown;     // 1: code that came by mmap has been shown to the tool; 2: it has not answered for some of it
  PendingSignal pending[kPendingSignals];
  DeferredSignal held[kDeferredSignals];
  Repeat repeats[kRepeats];
  u32 semaphore_count;  // entries from here on may be used; the tool writes them too
  u32 reserved5[3];
  Semaphore semaphores[kSemaphores];
};
static_assert(offsetof(ProcessBlock, flags) == 3096 && sizeof(CodeFile) == 24 && sizeof(MappedObject) == 24);
static_assert(sizeof(ProcessBlock) == 8816 + 168 * kPendingSignals + 8 * kFileRanges + 16 * kSemaphores);
inline constexpr u32 kToolOwnedBytes = offsetof(ProcessBlock, flags);
static_assert(offsetof(ProcessBlock, undo_offset) == 16 && offsetof(ProcessBlock, undo_count) == 20);

// First slot of an address in the hash; linear probing from there (Fibonacci hashing).
constexpr u32 hash_slot(u64 address, u32 bits) {
  return static_cast<u32>((address * 0x9e3779b97f4a7c15ull) >> (64 - bits));
}

}  // namespace uprobe::shared
