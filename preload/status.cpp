// SPDX-License-Identifier: MIT
// /proc/self/status as the program must see it: its lines SigBlk, SigIgn and SigCgt show the kernel's state, which is the
// agent's. A program that opens it gets the same text in a memory file, with these three lines corrected.
//
// A program that opens the name of a thread for writing is about to change it (pthread_setname_np).
//
// System calls, the first of which is the application's own open: read, memfd_create, write, lseek, dup3 and close. None once
// a filter of the program's own is in force.
#include "preload/status.h"

#include "preload/calls.h"
#include "preload/handler_entry.h"
#include "preload/system_call.h"
#include "preload/task_name.h"
#include "preload/thread.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

constexpr u64 kAccess = 3;  // O_ACCMODE; 0: for reading
constexpr u64 kCloexec = 02000000, kMemfdCloexec = 1, kMostText = 4000, kDigits = 16;

constexpr char kSelf[] = "/proc/self/status", kThreadSelf[] = "/proc/thread-self/status";

bool is_path(u64 address, const char* wanted, u64 bytes) {
  const Reader reader{true};
  char found[sizeof kThreadSelf];
  if (reader.copy(reinterpret_cast<u8*>(found), address, static_cast<u32>(bytes)) != bytes) return false;
  for (u64 i = 0; i < bytes; ++i)
    if (found[i] != wanted[i]) return false;
  return true;
}

// The path "self" shows the main thread to every thread; the agent can correct it for the main thread only.
bool is_status(u64 path) {
  if (is_path(path, kThreadSelf, sizeof kThreadSelf)) return true;
  return is_path(path, kSelf, sizeof kSelf) && system_call(kSysGettid) == system_call(kSysGetpid);
}

// The thread whose name is in a file under /proc/self or /proc/thread-self; 0: the path is no such file.
u32 task_of_name_file(ProcessBlock& block, u64 path) {
  constexpr char kThread[] = "/proc/thread-self/comm", kProcess[] = "/proc/self/comm", kTask[] = "/proc/self/task/",
                 kName[] = "/comm";
  if (is_path(path, kThread, sizeof kThread)) return thread_id(block, true);
  if (is_path(path, kProcess, sizeof kProcess)) return block.pid;
  if (!is_path(path, kTask, sizeof kTask - 1)) return 0;
  const Reader reader{true};
  u32 id = 0;
  for (u64 at = path + sizeof kTask - 1;; ++at) {
    u8 digit = 0;
    if (reader.copy(&digit, at, 1) != 1) return 0;
    if (digit < '0' || digit > '9') return is_path(at, kName, sizeof kName) ? id : 0;
    if (id > 100'000'000) return 0;
    id = id * 10 + (digit - '0');
  }
}

// The digits of a line "\nSigXxx:\t0123456789abcdef", null: there is none.
u8* digits_of(u8* text, u64 size, const char* name) {
  constexpr u64 kName = 9;
  for (u64 at = 0; at + kName + kDigits <= size; ++at) {
    u64 equal = 0;
    while (equal < kName && text[at + equal] == static_cast<u8>(name[equal])) ++equal;
    if (equal == kName) return text + at + kName;
  }
  return nullptr;
}

u64 set_at(const u8* digits) {
  u64 set = 0;
  for (u64 i = 0; i < kDigits; ++i)
    set = set << 4 | (digits[i] <= '9' ? digits[i] - u64{'0'} : digits[i] - u64{'a'} + 10);
  return set;
}

void put_set(u8* digits, u64 set) {
  for (u64 i = kDigits; i-- > 0; set >>= 4) {
    const u8 digit = set & 15;
    digits[i] = static_cast<u8>(digit < 10 ? '0' + digit : 'a' + digit - 10);
  }
}

void correct(ProcessBlock& block, const SignalFrame& frame, u8* text, u64 size) {
  u8* blocked = digits_of(text, size, "\nSigBlk:\t");
  u8* ignored = digits_of(text, size, "\nSigIgn:\t");
  u8* caught = digits_of(text, size, "\nSigCgt:\t");
  if (blocked == nullptr || ignored == nullptr || caught == nullptr) return;
  put_set(blocked, blocked_by_program(block, frame) | virtually_blocked(block));
  u64 ignores = set_at(ignored), catches = set_at(caught);
  for (u32 i = 0; i < shared::kAppSignals; ++i) {
    const u64 bit = signal_bit(static_cast<i32>(shared::kFaultSignalNumbers[i])), handler = block.actions[i].handler;
    ignores = handler == kSigIgn ? ignores | bit : ignores & ~bit;
    catches = handler > kSigIgn ? catches | bit : catches & ~bit;
  }
  put_set(ignored, ignores);
  put_set(caught, catches);
}

// Makes the descriptor refer to the text. On any failure the kernel's own text stays.
void replace(long descriptor, const u8* text, u64 size, bool closes) {
  const u64 fd = static_cast<u64>(descriptor);
  const char name[] = "status";
  const long memory = system_call(kSysMemfdCreate, as_word(name), kMemfdCloexec);
  const u64 file = static_cast<u64>(memory);
  if (memory >= 0 && system_call(kSysWrite, file, as_word(text), size) == static_cast<long>(size) &&
      system_call(kSysLseek, file, 0, 0) == 0)
    system_call(kSysDup3, file, fd, closes ? kCloexec : 0);
  else
    system_call(kSysLseek, fd, 0, 0);
  if (memory >= 0) system_call(kSysClose, file);
}

// Not inlined: it takes four kilobytes of stack, for one open in thousands.
__attribute__((noinline)) void show_belief_in(ProcessBlock& block, const SignalFrame& frame, long descriptor,
                                              bool closes) {
  u8 text[kMostText];
  const long size = system_call(kSysRead, static_cast<u64>(descriptor), as_word(text), sizeof text);
  if (size <= 0 || size == static_cast<long>(sizeof text)) {
    system_call(kSysLseek, static_cast<u64>(descriptor), 0, 0);
    return;
  }
  correct(block, frame, text, static_cast<u64>(size));
  replace(descriptor, text, static_cast<u64>(size), closes);
}

}  // namespace

bool may_be_status(u64 path) {
  u64 found = 0, self = 0, thread = 0;
  __builtin_memcpy(&self, kSelf, sizeof self);
  __builtin_memcpy(&thread, kThreadSelf, sizeof thread);
  return Reader{true}.load8(path, found) && (found == self || found == thread);
}

bool open_status(ProcessBlock& block, const SignalFrame& frame, long& result) {
  const bool at = call_number(frame) != kSysOpen;
  const u64 path = call_argument(frame, at ? 1 : 0), flags = call_argument(frame, at ? 2 : 1);
  if ((block.flags & shared::kBlockFilteredLater) != 0 || borrows_memory(block)) return false;
  if (!may_be_status(path)) return false;
  if ((flags & kAccess) != 0)
    if (const u32 task = task_of_name_file(block, path); task != 0) forget_task_name(block, task);
  if (!is_status(path)) return false;
  result = pass(frame);
  if (result >= 0) show_belief_in(block, frame, result, (flags & kCloexec) != 0);
  return true;
}

}  // namespace uprobe::agent
