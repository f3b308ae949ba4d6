// SPDX-License-Identifier: MIT
// Triggers that change the program (engine/shared/trigger.h): decided for each event before the hit is recorded, carried out on the
// signal frame of the breakpoint after all of its records. In-target code: README.md has its rules.
#pragma once

#include "arch/shared/callback_entry.h"
#include "preload/agent.h"

namespace uprobe::agent {

// What the events of one hit change, together. Of two that change the same thing the older definition has the last word.
struct Changes {
  static constexpr u32 kMostDecided = 16;
  static constexpr u32 kSettable = static_cast<u32>(shared::Reg::ip);  // the registers before it

  bool overrides = false;  // the function returns at once: `result`, to `return_to`
  u64 result = 0, return_to = 0;
  u64 errno_address = 0;  // 0: errno is left as it is
  u32 error_number = 0;
  u32 set_registers = 0;  // a bit for each, whose value is:
  u64 values[kSettable];
  u64 delay = 0;  // nanoseconds
  u32 signal = 0;
  u64 gate = 0;                    // where the thread calls a callback; 0: it does not
  shared::CallbackEntry callback;  // without `resume`
  u64* not_called = nullptr;       // counts a callback that could not be called after all
  bool is_of_record = false;       // the event that is recorded now is one of these:
  u32 decided_count = 0;           // events that change something, as session << 16 | event
  u32 decided[kMostDecided];
};

// The registers of a hit at which triggers may change the program, and what they change. Only such a hit needs the stack for it.
struct ChangingHit {
  Registers registers;
  Changes changes;
};
inline Changes* changes_of(const Hit& hit) {
  return hit.can_change ? &reinterpret_cast<ChangingHit*>(hit.registers)->changes : nullptr;
}

// Whether the event that is recorded changes the program at this hit.
inline bool is_changing(const Hit& hit) { return hit.can_change && changes_of(hit)->is_of_record; }
inline bool is_overridden(const Hit& hit) { return hit.can_change && changes_of(hit)->overrides; }

// Before the hit is recorded for a consumer: decides about its event, unless that is one of the entry, which was decided before. Not
// where nothing can be changed.
void prepare_change(const Hit& hit, AreaHeader* area, const shared::Consumer& consumer);

// Adds to the changes of the hit what the triggers of the consumer's event change at this hit, and counts it. Makes no system call but the
// prctl that reads a task's name.
void decide_change(const Hit& hit, AreaHeader* area, const shared::Consumer& consumer);

// Leads the thread to the callback that is decided, from which it goes on at `resume`. Nothing where there is none, or no room for it on
// the thread's stack.
void call_back(const Changes& changes, u64 resume, SignalFrame& frame);

// Makes the changes in the frame of the breakpoint. True: the function does not run, and the thread goes on in its caller. May make
// system calls: to sleep, and to send the thread a signal.
bool carry_out(const Changes& changes, SignalFrame& frame);

}  // namespace uprobe::agent
