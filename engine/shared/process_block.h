// SPDX-License-Identifier: MIT
// What the two worlds have in common, part 4: the process block.
//
// Private memory of one traced process (copied by fork): which addresses are patched, with what, for whom. Written by the
// tool (through the Target interface), read by the agent at each hit.
//
//   [ ProcessBlock | Point[] | Undo[] | Consumer[] | hash u32[] | ThreadEntry[] ]
//
// A point is published by writing Point, its consumers and its undo entry, then the hash entry, then the text. A point is
// never taken away: a disarmed one stays, so that a thread that has already trapped still finds its copy.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u64 kBlockMagic = 0x316b6c6270727075;  // "uprpblk1"
inline constexpr u32 kMaxSessions = 8;

enum class PointState : u32 { armed = 1, disarmed = 2, unmapped = 3 };
// What a point does besides feeding its consumers.
// probe: nothing. library_hook: asks the tool about libraries. system_call: the agent may make the call itself.
// open_call: at the last instruction before an open or openat, `mov $n, %eax`, `%edx` or `%edi`: the agent may make the call.
// find_object, iterate_objects: the first instruction of _dl_find_object and dl_iterate_phdr, where unwinders ask for what
// belongs to an address.
// ..._return: right behind clone, clone3, vfork or fork, where a child may run on its parent's thread control block.
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
};
inline constexpr u32 kBeforeOpen = 5;  // bytes of that instruction

// Where in the program a thread stands that is in a copy, from `offset` up to the next mark: at Point::address + place (0: in
// front of the probed instruction), its rsp lower by `pushed` than the program's would be there.
struct Mark {
  u8 offset;  // in the copy, rising from 0
  u8 pushed;
  u16 behind_call;  // 1: of `syscall`, whose rcx is still the copy's
  i32 place;
};
static_assert(sizeof(Mark) == 8);

inline constexpr u8 kBreakpoint = 0xcc;    // int3
inline constexpr u32 kJumpBytes = 5;       // jmp rel32
inline constexpr u32 kShortJumpBytes = 2;  // jmp rel8

struct Point {
  u64 address;    // of the probed instruction in this process
  u64 copy;       // where the displaced instructions run; they end with a jump back. The marks stand behind: marks_of()
  u64 file_bias;  // address - file offset, for @+OFF
  u64 jump_to;    // where the jump leads that stands at `address`; 0: there is none
  u32 state;      // PointState
  u32 role;       // PointRole
  u32 consumer;   // index + 1 of the first consumer (the newest), 0: none
  u32 copy_bytes;
  u8 insn_bytes;  // length of the probed instruction
  u8 code_bytes;  // of all displaced instructions: more than one where a jump needed their room
  u8 jump_bytes;  // kJumpBytes or kShortJumpBytes; 0: a breakpoint
  u8 mark_count;
  u8 behind_bytes;   // how much is known of what the file has behind the first byte; see Undo
  u8 prefix_window;  // not 0: nothing of its own stands at `address`; it lies in a jump that begins so many bytes before
  u16 behind_varies;  // bit i: the byte i + 1 behind `address` is or was changed by a jump of a neighbour
};
static_assert(sizeof(Point) == 56);

// The second half of a short jump, in the padding. A thread that has executed the first half may stand in front of it, off its
// processor, for as long as it likes: what was padding before must not come back.
constexpr bool is_long_jump(const Point& point) {
  return point.jump_bytes == kJumpBytes && point.copy == point.jump_to && point.mark_count == 0;
}
// Who comes to a place that has too little room for a jump comes through the instructions in front of it: its prefix_window. A point
// without consumers stands where that begins, by a jump, for a moment by a breakpoint. Its copy is that of the prefix_window and
// goes on in the thunk of the place, whose point has no text of its own (Point::prefix_window; its undo entry says "restored").
constexpr bool is_prefix_window(const Point& point) {
  return point.jump_bytes == kJumpBytes && point.copy == point.jump_to && point.mark_count != 0;
}
// A thunk stands in front of the copy.
constexpr bool has_thunk(const Point& point) {
  return point.prefix_window != 0 || (point.jump_bytes != 0 && point.copy != point.jump_to);
}
// A jump at a probe point or a prefix window, armed.
constexpr bool is_armed_jump(const Point& point) {
  return point.jump_bytes != 0 && !is_long_jump(point) && point.state == static_cast<u32>(PointState::armed);
}

// The marks of a copy, behind it in the island.
constexpr u64 marks_of(const Point& point) { return (point.copy + point.copy_bytes + 7) & ~u64{7}; }

// What stands at an armed point.
struct ArmedText {
  u8 bytes[kJumpBytes];
  u32 length;
};
constexpr ArmedText armed_text(const Point& point) {
  ArmedText text{{kBreakpoint}, 1};
  if (point.jump_bytes == 0) return text;
  text.length = point.jump_bytes;
  const u64 distance = point.jump_to - (point.address + text.length);
  text.bytes[0] = point.jump_bytes == kShortJumpBytes ? 0xeb : 0xe9;
  for (u32 i = 1; i < text.length; ++i) text.bytes[i] = static_cast<u8>(distance >> (8 * (i - 1)));
  return text;
}

// What a consumer wants of a point. entry: the registers in front of the instruction. exit: the point is where a function is
// left, by a return or a jump, or in front of it, and the registers are wanted as they are behind that return. note: the point is
// the entry of a function, and what an event at its exits wants of that is noted. stub: the point is a function's
// entry, and its return is wanted, which comes by way of a stub.
enum class ConsumerKind : u8 { entry, exit, stub, note };

struct Consumer {
  u8 session;    // index into ProcessBlock::sessions
  u8 kind;       // ConsumerKind
  u16 event;     // index into that session's event table
  u32 next;      // index + 1 of the next older consumer, 0: last
  i32 distance;  // exit: from the function's first instruction to the point
  u16 pops;      // exit: bytes that the return takes from the stack, its address included
  u16 lead;      // exit: bytes that the instructions in front of the return take first
  u32 restored;  // exit: what these take from the stack into which register; see restored_at()
};
static_assert(sizeof(Consumer) == 20);

// The registers that a function has to leave as it found them, and, in Consumer::restored, five bits for each: which word of the
// stack it gets, from 1; 0: it keeps its value.
inline constexpr Reg kKeptRegisters[] = {Reg::bx, Reg::bp, Reg::r12, Reg::r13, Reg::r14, Reg::r15};
inline constexpr u32 kRestoredBits = 5, kMostRestored = 31;
constexpr u32 restored_at(u32 restored, u32 index) { return restored >> (kRestoredBits * index) & kMostRestored; }

// Frozen for ever: any later tool restores from these what an earlier one left behind.
struct Undo {
  u64 address;
  u32 length;       // bytes patched, <= 16
  u32 state;        // 0 restored, 1 patched
  u8 original[16];  // what stood there; Point::behind_bytes more of it show later that the code is still the same
};
static_assert(sizeof(Undo) == 32);
inline constexpr u32 kMostBehind = sizeof(Undo::original) - 1;

// Whether the memory behind the first byte of an armed point is as it was. Any byte may be a breakpoint by now, but not all
// of them; those of the point's own jump may be the original ones for a moment.
constexpr bool is_as_before(const Point& point, const Undo& undo, const u8* behind) {
  const ArmedText armed = armed_text(point);
  u32 equal = 0, known = 0;
  for (u32 i = 0; i < point.behind_bytes && i < kMostBehind; ++i) {
    if ((point.behind_varies >> i & 1) != 0) continue;
    const bool ours = i + 1 < armed.length && behind[i] == armed.bytes[i + 1];
    const bool same = ours || behind[i] == undo.original[i + 1];
    ++known;
    equal += same ? 1 : 0;
    if (!same && behind[i] != kBreakpoint) return false;
  }
  return equal != 0 || known == 0;
}

// Executable pages of ours in the process: displaced copies live here. [base, base + bytes), `used` bytes from the start.
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

// What a process has shown of a restartable sequence (rseq) that no file shows: the kernel has led a thread from a breakpoint to the
// abort handler at `abort`. sequence: [begin, end) is the sequence, by a descriptor in the process's memory. functions: a function
// that the handler belongs to or leads to. object, process: all of the code that the handler belongs to, or all that there is.
enum class BarredStep : u32 { sequence = 1, functions, object, process };
// Nothing is probed in [begin, end) of the file, nor in the four bytes before `abort`, which the kernel reads.
struct BarredCode {
  u64 begin, end;
  u64 abort;          // 0: the entry is free
  u64 device, inode;  // as in /proc/PID/maps; 0, 0: of any file
  u32 step;           // BarredStep
  u32 late;           // so many threads may still come that had trapped before the breakpoints were gone
};
static_assert(sizeof(BarredCode) == 48);
inline constexpr u32 kBarredCodes = 16;

// Mapped code of a file, [begin, end), and where the file's .eh_frame_hdr is in memory, 0: it has none. Known only where functions
// are to return by stubs.
struct CodeFile {
  u64 begin, end;
  u64 unwind_header;
};
inline constexpr u32 kCodeFiles = 1024;

// Where a file that events read data of is in this process. Its addresses lie `bias` above those that it was linked for. It can be gone
// before the tool knows: at `sentinel_at` it has the word `sentinel`, and where that is not read its data is not either.
struct MappedObject {
  u64 bias;
  u64 sentinel_at;  // 0: it is not mapped, or its data is not found for certain. Written last, and cleared before a change
  u64 sentinel;
};
inline constexpr u32 kMappedObjects = 32;

struct SessionLink {
  u64 area;  // address of the session area in this process, 0: none
};

// What the application believes its disposition of a signal to be (struct kernel_sigaction of the x86-64 ABI).
struct AppAction {
  u64 handler;  // 0 SIG_DFL, 1 SIG_IGN
  u64 flags;
  u64 restorer;
  u64 mask;
};

enum class AppSignal : u32 { trap, segv, bus, fpe, ill };
inline constexpr u32 kAppSignals = 5;
inline constexpr u32 kAppSignalNumbers[kAppSignals] = {5, 11, 7, 8, 4};  // x86-64: uapi/asm/signal.h

// Of the other signals the kernel knows all but the handler, in whose place it has ours.
struct OtherAction {
  u64 handler;  // 0 SIG_DFL, 1 SIG_IGN
  u64 flags;
};
inline constexpr u32 kSignals = 64;

// What is known of a thread: what it believes to have blocked of SIGTRAP, SIGSEGV, SIGBUS, which are never blocked in
// fact, who uses its control block, and which signals wait for it to leave the agent.
struct ThreadEntry {
  u64 thread;           // its thread pointer (fs base), 0: free
  u64 blocked;          // bits as in a sigset
  u32 borrower;         // id of a child that runs with this control block though it is not its own, 0: none
  u32 shares;           // 1: the borrower runs in its parent's memory; kParentWaits: the same, and the parent waits
  u64 parents_blocked;  // what the parent believed when the borrower came
  u64 waits;            // bits of kOurSignals that a sigtimedwait under way waits for
  u32 pending;          // index + 1 of the newest PendingSignal of this thread, 0: none
  u32 attention;        // something has come that a system call about to be made must not sleep over
  u64 cleared;          // a clone3 under way has CLONE_CLEAR_SIGHAND: the child has no handlers
  u64 own_stack;        // of ours, the kernel's alternate signal stack of this thread; 0: none. The bits below a page
                        // count the threads that have had it with this control block
  u64 app_stack, app_stack_size;  // the application's (stack_t); size 0: disabled
  u32 app_stack_flags;
  u32 id;              // of the thread that own_stack was given to
  u64 clone_flags;     // of a clone3 under way, kCloneUnderWay with them; 0: none
  u16 traced_at_exec;  // 1: has asked to be traced by its parent, from its next program on
  u16 beside;          // 1: a borrower runs, or ran, beside its parent: which of them a thread is, it alone knows
  u16 steps;           // of copies, by a trap flag of ours, that have not been reported yet; see preload/steps.cpp
  u16 step_kind;       // of the newest
  u32 goes_by_parent;  // 1: the borrower is in another PID namespace than its parent, and has the parent's number in records
  u32 reserved;
};
inline constexpr u64 kCloneUnderWay = u64{1} << 63;
inline constexpr u32 kParentWaits = 2;
static_assert(sizeof(ThreadEntry) == 112);

// Places in the thread control block, from fs:0 (struct pthread): glibc x86-64 since 2.10, musl 1.2. A layout is believed when
// its robust list, empty nearly always, points to itself: a word that holds its own address is there in no other layout.
struct ControlBlockLayout {
  i32 tid, list;
};
inline constexpr ControlBlockLayout kControlBlocks[] = {{0x2d0, 0x2e0}, {0x30, 0x88}};

// A signal that has come while its thread was in the agent: its handler runs when the thread leaves.
struct PendingSignal {
  u32 taken;
  u32 next;      // index + 1 of the one before it, 0: none
  u64 handler;   // of the application
  u64 flags;     // its sa_flags
  u64 restorer;  // where it returns to
  u64 mask;      // what was blocked when the signal came, in force again after the handler
  u8 info[128];  // siginfo
};
inline constexpr u32 kPendingSignals = 256;  // one thread may get all of the 64 kinds at once

// One of kOurSignals, sent while the receiver believes it blocked: kept until it may arrive.
struct DeferredSignal {
  u32 state;  // 0 free, 1 being written, 2 there
  u32 signal;
  u64 thread;  // thread pointer of the receiver, 0: any thread of the process
  u8 info[128];
};
inline constexpr u32 kDeferredSignals = 16;

// A thread will execute the instruction at `address` once more though its hit has been recorded: a signal came when the
// thread was in front of it, in the copy, and the handler was shown the original address.
struct Repeat {
  u64 thread;  // thread pointer, 0: free
  u64 address;
  // 0: it is on its way there. Even: the handler's signal frame, which has not been returned from yet. Odd: nobody will say
  // when that is; the stack pointer of the thread, | 1.
  u64 frame;
  u64 state;  // digest of the registers
};
inline constexpr u32 kRepeats = 64;

inline constexpr u32 kThreadEntries = 4096;
inline constexpr u64 kOurSignals = 1ull << (5 - 1) | 1ull << (7 - 1) | 1ull << (11 - 1);  // TRAP, BUS, SEGV

// Address space where private mappings of files may be that cannot be executed yet: pages, begin | count << 36; 0: free. One
// word, so that threads change it without a lock.
inline constexpr u32 kFileRanges = 256;
inline constexpr u32 kRangeBeginBits = 36;

inline constexpr u32 kBlockFiltered =
    1;  // a seccomp filter is or may come into force: no system call, not even for $comm
inline constexpr u32 kBlockFilteredLater = 2;  // it came after the agent: it may forbid what the agent has done before
inline constexpr u32 kBlockFsgsbase = 4;       // user code may use rdfsbase (AT_HWCAP2)
inline constexpr u32 kBlockLeadsBack = 8;      // the agent's visible restorer faults when it is executed
inline constexpr u32 kBlockLedBack = 16;       // a handler has been given it to return to
inline constexpr u32 kBlockHasStubs = 32;      // functions return by way of stubs, now or later
inline constexpr u32 kBlockAttached =
    64;  // the program was running already: nobody knows of handlers that it may be in
inline constexpr u32 kBlockElsewhere =
    128;  // it began in another PID namespace than the tool's: its bodies add the words of a task
inline constexpr u32 kBlockMovedAway =
    256;  // it is in another one than the process that it was forked from: its bodies do not

inline constexpr i64 kRseqBias = i64{1} << 31;
inline constexpr u32 kBorrowedBits = 40;
inline constexpr i64 kBorrowedStep = i64{1} << kBorrowedBits;
// Of ProcessBlock::own_rseq.
constexpr i64 borrowers(i64 own_rseq) { return -(own_rseq >> kBorrowedBits); }

// Of ProcessBlock::left: the breakpoints were taken out for good. While it is leaving all threads are held but for moments in which
// one of them comes out of the agent, which still knows their masks.
inline constexpr u32 kLeft = 1, kLeaving = 2;

struct ProcessBlock {
  u64 magic;
  u32 abi_version;
  u32 block_bytes;
  u32 undo_offset;  // frozen: magic .. undo_count stay at these places
  u32 undo_count;

  u32 pid;            // of the process that was loaded, in its own PID namespace; a forked child has its parent's
  u32 thread_offset;  // of the table of threads, which is the agent's own; 0: there is none
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
  u32 unbound;  // 1: an IFUNC that is probed has not chosen yet
  u64 agent_base;
  SessionLink sessions[kMaxSessions];
  Island islands[kMaxIslands];
  u64 stamp;  // a random name of the tables' contents, new before each change: fork copies it with them
  u64 agent_text, agent_text_end;  // in this process; 0: not known, nothing is taken for the agent's code then
  u32 left;                        // kLeft, kLeaving; 0: breakpoints come and go
  u32 no_stubs;                    // 1: an unwinder is there that does not find its way through return stubs
  u64 jump_entry;                  // where trampolines go with hits that they do not record themselves
  u64 changer;                     // id of a tool's process that is changing armed text, 0: none
  u32 code_file_offset;            // of CodeFile[kCodeFiles]
  u32 code_file_count;
  u32 any_caller;  // 1: stubs also for callers of which no unwind information is known
  u32 reserved1;
  u64 stack_end;  // of the thread that the kernel started; 0: not known
  u64 reserved2[7];
  MappedObject objects[kMappedObjects];  // Op::load_object names them
  JumpRange jump_ranges[kJumpRanges];
  BarredCode barred[kBarredCodes];

  // From here on the agent's own: the tool writes it once, before the agent runs.
  u32 flags;       // kBlockFiltered
  i32 tid_offset;  // of the thread id in the thread control block, from fs:0; 0: not known yet
  // rseq_offset + kRseqBias when that and tid_offset are known, else 0; and kBorrowedStep less for each control block that has a
  // borrower, or had one beside its owner, and with kBlockMovedAway. So it is positive, which is all that bodies look at, where a
  // thread's rseq is its own and a body knows what to write.
  i64 own_rseq;
  i32 rseq_offset;      // of libc's struct rseq, from fs:0; 0: none, or not known yet
  u32 segv_stays_open;  // 1: the program's SIGSEGV handler runs with SIGSEGV deliverable
  AppAction actions[kAppSignals];
  u64 start_blocked;  // of kOurSignals, blocked when the program started: what a thread without an entry believes
  OtherAction others[kSignals + 1];
  u8 masked_in[72];  // per signal: which of kOurSignals its sa_mask names (bit 0 TRAP, 1 SEGV, 2 BUS)
  u32 tool_gone;     // a request ran into its deadline: nobody asks again
  u32 own_process;  // of this process, in its own PID namespace; 0: not known. Of those that have other numbers in the tool's
  u32 process_word, thread_word;  // TaskWords
  u32 ends;                       // 1: it is about to end, and waits until its trace is complete
  u32 alone;                      // 1: a thread takes breakpoints out by itself, since the tool is gone
  u64 file_ranges[kFileRanges];
  u32 repeat_count;
  u32 deferred_count;
  u32 stack_cursor;   // of the search for stacks of threads that have ended
  u32 by_descriptor;  // of kOurSignals, named by a signalfd that the program has made
  PendingSignal pending[kPendingSignals];
  DeferredSignal held[kDeferredSignals];
  Repeat repeats[kRepeats];
};
static_assert(offsetof(ProcessBlock, flags) == 3096 && sizeof(CodeFile) == 24 && sizeof(MappedObject) == 24);
static_assert(sizeof(ProcessBlock) == 8784 + 168 * kPendingSignals + 8 * kFileRanges + 8);
inline constexpr u32 kToolOwnedBytes = offsetof(ProcessBlock, flags);
static_assert(offsetof(ProcessBlock, undo_offset) == 16 && offsetof(ProcessBlock, undo_count) == 20);

// Slot of an address in the hash; linear probing from there (Fibonacci hashing).
constexpr u32 hash_slot(u64 address, u32 bits) {
  return static_cast<u32>((address * 0x9e3779b97f4a7c15ull) >> (64 - bits));
}

}  // namespace uprobe::shared
