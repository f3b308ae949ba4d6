// SPDX-License-Identifier: MIT
// What the two worlds have in common, part 12: which thread made a record.
//
// The agent knows a thread by its number in its own PID namespace. In the namespace of the tool that number is the thread's as well, and
// PayloadHead::pid has it alone. Elsewhere it may be a stranger's there: then the tool has told the process which number it has in the
// tool's namespace (ProcessBlock::process_word, thread_word), and each record has both:
//
//   flags, preempt_count   the lower 16 bits of the process's number
//   pid                    own number of the thread : 22 | upper bits of the process's number : 6 | kOfChild
//
// (No number reaches 2^22: PID_MAX_LIMIT of include/linux/threads.h.) A child of fork that has not been told its number has its parent's,
// and says so by kOfChild; where the parent is in the tool's namespace that number is 0. The reader finds out who it is, and what it
// hands on has the number of the thread in the tool's namespace, as the format of the records says.
#pragma once

#include "engine/shared/event_program.h"

namespace uprobe::shared {

inline constexpr u32 kNumberBits = 22, kNumberMask = (1u << kNumberBits) - 1;
inline constexpr u32 kOfChild = 1u << 31;

// What is added to the first and the second word of a record's payload; both 0: the numbers are the tool's.
struct TaskWords {
  u32 process, thread;
};
constexpr TaskWords words_of(u32 process, bool of_child) {
  return {(process & 0xffff) << 16, (process & kNumberMask) >> 16 << kNumberBits | (of_child ? kOfChild : 0)};
}

constexpr bool is_elsewhere(TaskWords words) { return (words.process | words.thread) != 0; }

// A thread as a record names it.
struct TaskNumber {
  u32 process = 0;        // in the tool's namespace; 0: `thread` is the number there
  u32 thread = 0;         // in its own
  bool of_child = false;  // it is of a child of that process, or of one of its children

  constexpr bool is_elsewhere() const { return process != 0 || of_child; }
  // Different ones of different tasks; of the tool's namespace the number.
  constexpr u64 key() const {
    return is_elsewhere() ? u64{process | (of_child ? kOfChild : 0)} << 32 | thread : thread;
  }
  friend constexpr bool operator==(const TaskNumber&, const TaskNumber&) = default;
};

constexpr TaskNumber task_of(u32 first, u32 second) {
  const u32 process = first >> 16 | (second >> kNumberBits & 0x3f) << 16;
  const bool of_child = (second & kOfChild) != 0;
  const bool is_elsewhere = process != 0 || of_child;
  return {process, is_elsewhere ? second & kNumberMask : second, of_child};
}
constexpr TaskNumber task_of(const PayloadHead& payload) {
  const u32 process = u32{payload.flags} | u32{payload.preempt_count} << 8;
  return task_of(process << 16, static_cast<u32>(payload.pid));
}
constexpr TaskNumber task_of_key(u64 key) {
  const u32 upper = static_cast<u32>(key >> 32);
  return {upper & kNumberMask, static_cast<u32>(key), (upper & kOfChild) != 0};
}

inline constexpr u32 kTaskOffset = offsetof(PayloadHead, pid), kTaskBytes = sizeof(PayloadHead::pid);

// Of Ring::owner: not the number of a thread in the tool's namespace, but that of its process there, or of its parent.
inline constexpr u32 kOwnerElsewhere = 1u << 30;
constexpr u32 owner_of(TaskWords words, u32 thread) {
  if (!is_elsewhere(words)) return thread;
  return kOwnerElsewhere | task_of(words.process, words.thread).process;
}

}  // namespace uprobe::shared
