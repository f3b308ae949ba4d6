// SPDX-License-Identifier: MIT
// The mailbox: one page by which the threads of a process ask the tool for work.
//
// It lies before the session area and is private to the process: a child of fork finds it empty (MADV_WIPEONFORK), a child in
// its parent's memory shares it. The tool reads and writes it by /proc/PID/mem, so each word in it was written by the process
// itself or by the tool, and by no other process. A preloaded agent's first conversation has the same form, in the page that it
// shares with its helper (bootstrap.h).
//
// In a conversation a thread takes a slot, writes its request and rings; then the two sides speak in turn, each by a word of
// its own:
//
//   asked     (agent)  request n                    result n+1                    result n+3 ...
//   answered  (tool)            command n+1                     command n+3  ...               done n+m
//
// Numbers rise by one from word to word, so neither side takes a word of an abandoned conversation for one of its own. `working
// n` says that the tool has seen the request. A thread that gives up says `abandoned`, looks once more for `done`, and says
// `accepted` or `left`.
//
// A word of the other side may be torn when it is read. So each word is written twice, `check` last, and read in the opposite
// order: it counts if both are the same.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u64 kMailboxBytes = 4096;
inline constexpr u32 kMailSlots = 31;

// A command number that is no system call: call the function at address command[1] (no arguments); result is what it returns.
inline constexpr u64 kCallFunction = ~u64{0};

// The answer of the tool to leave_one, in `folder`; 0: the process has been left.
inline constexpr u64 kMayNotTrace = 1;

enum class MailState : u32 { none, request, working, command, result, done, abandoned, accepted, left };

// exec_begins: the thread is about to call execve; the tool seizes it. exec_failed: the call came back. code_mapped: the
// contents of an address range are gone, and code of a file may have taken their place. leave_me: another process is about to
// trace the requester; its breakpoints are removed for good; path = 1 if the handlers are its own. leave_one: the same for the
// process with the thread that the requester calls `path`; the tool puts kMayNotTrace into `folder` where it cannot. process_begins:
// the tool tells a child of fork, in another PID namespace, its number in the tool's. sequence_aborted: a breakpoint has made the kernel abort a restartable sequence; path =
// its abort handler, folder = the thread's stack pointer there.
enum class MailKind : u32 {
  none,
  libraries_changed,
  exec_begins,
  exec_failed,
  code_mapped,
  leave_me,
  leave_one,
  code_writable,        // the range [path, folder) is about to be
  credentials_changed,  // perhaps: the process may have left its trust domain
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
// The number so many words later.
constexpr u32 number_after(u32 number, u32 steps) { return (number + steps) & (~0u >> kTurnBits); }

struct alignas(128) MailSlot {
  Turn asked;     // the agent's
  Turn answered;  // the tool's
  u32 taken;      // 1: a thread of the process has taken the slot; the tool does not read it
  u32 kind;
  u32 tid;         // the waiting thread, as in its thread control block
  u32 called;      // the number by which the thread rings, and by which the tool wakes it
  u64 block;       // address of the process block
  u64 command[7];  // a system call for the agent to execute: number, six arguments; or kCallFunction
  u64 result;
  u64 path;    // exec_begins: address of the path; code_mapped: first address
  u64 folder;  // exec_begins: descriptor that the path is relative to (AT_FDCWD: the working directory); code_mapped: end
};
static_assert(sizeof(MailSlot) == 128);

struct alignas(128) Mailbox {
  u32 queue;     // threads that wait for a slot, including those that were killed while they waited
  u32 freed;     // futex: bumped with each slot that is freed while a thread waits for one
  u32 quiet;     // futex that is never woken: for sleeping
  u32 sum_bank;  // number + 1 of the bank in which the process sums up its calls (call_sums.h); 0: none yet
  u32 reserved[28];
  MailSlot slots[kMailSlots];
};
static_assert(sizeof(Mailbox) == kMailboxBytes);

}  // namespace uprobe::shared
