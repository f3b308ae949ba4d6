// SPDX-License-Identifier: MIT
// Task numbers: how a record names its thread.
//
// The agent knows a thread by its number in its own PID namespace. If that is the tool's namespace, PayloadHead::pid holds this
// number alone. In another namespace the number may be a different thread's: the tool tells the process its number in the
// tool's namespace (ProcessBlock::process_word, thread_word), and each record has both:
//
//   flags, preempt_count   the lower 16 bits of the process's number
//   pid                    own number of the thread : 22 | upper bits of the process's number : 6 | kOfChild
//
// (No number reaches 2^22: PID_MAX_LIMIT of include/linux/threads.h.) A child of fork that has not been told its number has its
// parent's and sets kOfChild; if the parent is in the tool's namespace, that number is 0. The reader finds the thread, and the
// records that it hands on have the thread's number in the tool's namespace, as ftrace's format requires.
#pragma once

#include "engine/shared/event_program.h"

namespace uprobe::shared {

inline constexpr u32 kNumberBits = 22, kNumberMask = (1u << kNumberBits) - 1;
inline constexpr u32 kOfChild = 1u << 31;

// Added to the first and the second word of a record's payload; both 0: the numbers are those of the tool's namespace.
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
  bool of_child = false;  // it belongs to a child or later descendant of that process

  constexpr bool is_elsewhere() const { return process != 0 || of_child; }
  // Unique for each task; of a task in the tool's namespace its number.
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

// Of Ring::owner: the number is not a thread's, but that of its process, or of its parent, in the tool's namespace.
inline constexpr u32 kOwnerElsewhere = 1u << 30;
constexpr u32 owner_of(TaskWords words, u32 thread) {
  if (!is_elsewhere(words)) return thread;
  return kOwnerElsewhere | task_of(words.process, words.thread).process;
}

}  // namespace uprobe::shared
