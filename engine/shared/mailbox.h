// SPDX-License-Identifier: MIT
// What the two worlds have in common, part 11: the mailbox, by which the threads of one process ask the tool for work.
//
// One page in front of the session area, the process's own: private memory that a child of fork finds empty (MADV_WIPEONFORK; a
// child in its parent's memory shares it). The tool reads and writes it through /proc/PID/mem, so what stands in it is said by the
// process itself or by the tool, and by no other process. A preloaded agent's first conversation is the same, in the page that it
// shares with its helper (engine/shared/bootstrap.h).
//
// A conversation: a thread takes a slot, writes its request, and says so; the two sides then speak by turns, each by a word of its
// own. Numbers rise by one from one word to the next, so what is left of a conversation that was given up is not taken for another's.
//
//   asked:    request n                    result n+1                    result n+3 ...
//   answered:            command n+1                   command n+3  ...             done n+m
//
// (`working n`, the tool's, says that it has seen the request.) A thread that gives up says `abandoned`, looks once more for `done`,
// and says `accepted` or `left`.
//
// The other side's copy of a word may be torn. So each word is written twice, `check` last, and read the other way round: it counts
// where both are the same.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u64 kMailboxBytes = 4096;
inline constexpr u32 kMailSlots = 31;

// A command number that is no system call: call the function whose address is command[1] (no arguments), result = rax.
inline constexpr u64 kCallFunction = ~u64{0};

enum class MailState : u32 { none, request, working, command, result, done, abandoned, accepted, left };

// exec_begins: the thread is about to call execve; the tool seizes it. exec_failed: the call came back. code_mapped: what was in a
// range of addresses is gone, and code of a file may be there. leave_me: the requester is about to be traced by somebody else; its
// breakpoints come out, for good; path = 1 if the handlers are its own. leave_one: the same for the process with the thread that the
// requester calls `path`. process_begins: a child of fork, in another PID namespace than the tool, is told its number there.
// sequence_aborted: a breakpoint has made the kernel abort a restartable sequence; path = its abort handler, folder = the thread's
// stack pointer there.
enum class MailKind : u32 {
  none,
  libraries_changed,
  exec_begins,
  exec_failed,
  code_mapped,
  leave_me,
  leave_one,
  code_writable,        // is about to be: [path, folder)
  credentials_changed,  // may have: the process may have left its trust domain
  process_begins,
  sequence_aborted
};

struct Turn {
  u32 word;
  u32 check;
};
inline constexpr u32 kTurnBits = 4;
constexpr u32 turn(u32 number, MailState state) { return number << kTurnBits | static_cast<u32>(state); }
constexpr MailState state_of(u32 word) { return static_cast<MailState>(word & ((1u << kTurnBits) - 1)); }
constexpr u32 number_of(u32 word) { return word >> kTurnBits; }
// The number that follows so many words later.
constexpr u32 number_behind(u32 number, u32 steps) { return (number + steps) & (~0u >> kTurnBits); }

struct alignas(128) MailSlot {
  Turn asked;     // the agent's
  Turn answered;  // the tool's
  u32 taken;      // by a thread of the process; the tool does not look at it
  u32 kind;
  u32 tid;         // the waiting thread, as its thread control block says
  u32 called;      // what it rings by, and is woken by
  u64 block;       // address of the process block
  u64 command[7];  // a system call for the agent to execute: number, six arguments; or kCallFunction
  u64 result;
  u64 path;    // exec_begins: address of the path; code_mapped: first address
  u64 folder;  // exec_begins: descriptor that the path is relative to (AT_FDCWD: the working directory); code_mapped: end
};
static_assert(sizeof(MailSlot) == 128);

struct alignas(128) Mailbox {
  u32 queue;  // threads that wait for a slot; those that were killed meanwhile are still among them
  u32 freed;  // futex: bumped with each slot that is freed while a thread waits for one
  u32 quiet;  // futex that nobody wakes
  u32 reserved[29];
  MailSlot slots[kMailSlots];
};
static_assert(sizeof(Mailbox) == kMailboxBytes);

}  // namespace uprobe::shared
