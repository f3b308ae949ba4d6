// SPDX-License-Identifier: MIT
// Triggers: what a hit of an event does besides being recorded.
//
// In a session in which events can be off, one switch turns the whole session and one switch turns each event (all probes of an
// event share it). A trigger belongs to an event: each hit, or each hit for which the trigger's tests hold, turns a switch. The
// agent does that before it records the hit, except for trace_off: the event that causes it is still recorded. A trigger of the
// kind `histogram` turns no switch: it adds the hit to a histogram (histogram.h), also while the event is off. A trigger of the
// kind `stack` adds the stack of the hit to its record; one of the kind `snapshot` asks the tool to write what it keeps. If a trigger's tests ask for a task name that the agent may not fetch
// (a seccomp filter), it does nothing and is counted: the reader could not do it later.
//
// Triggers from `override_return` on change the program (preload/actions.cpp). They stand in the plan alone, which no process can
// write, are decided before the hit is recorded, also while the event is off, and are carried out after it; only in a process that
// LiveHeader::changes_allowed permits, and at breakpoints, where all registers of the thread are at hand.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

enum class TriggerKind : u32 {
  trace_on,
  trace_off,
  enable_event,
  disable_event,
  histogram,
  stack,
  snapshot,         // LiveHeader::snapshots
  override_return,  // at a function's first instruction: it does not run, and returns `value`
  set_register,     // register `target` becomes `value`
  delay,            // the thread sleeps `value` nanoseconds
  send_signal,      // number `value`, to the thread, or to the process (SIGSTOP and its kind always)
  call_back,        // the thread calls callback `target` of its own program, by the CallbackGate at `value`
};
inline constexpr u32 kTriggerKindCount = 12;

// Where a thread's errno is: at the thread pointer + an offset, which is a number, or which the dynamic linker has written to a word of
// libc's data (System V ABI, "ELF Handling For Thread-Local Storage", initial exec).
enum class ErrnoPlace : u32 { none, offset, word };

inline constexpr u64 kUnlimited = ~u64{0};  // of AreaHeader::left_offset

struct Trigger {
  u32 kind;                    // TriggerKind
  u32 target;                  // of enable_event and disable_event: the number of a switch; of a histogram
  u32 first_test, test_count;  // engine/shared/filter.h; 0: it acts at each hit
  u64 value;                   // of those that change the program
  // Of override_return, which may set errno:
  u32 error_number;  // ErrnoPlace::none: errno is left as it is
  u32 errno_place;   // ErrnoPlace
  u64 errno_at;      // the offset, or the word's link-time address; of call_back: CallbackGate::cookie
  u32 libc;          // index of libc in ProcessBlock::objects
  u32 reserved;
};
static_assert(sizeof(Trigger) == 48);

inline constexpr u32 kMostCallbacks = 256;
inline constexpr u64 kMostDelay = 10ull * 1000 * 1000 * 1000;  // nanoseconds

inline constexpr u32 kSwitchOn = 0, kSwitchOff = 1;
inline constexpr u32 kNoSwitch = ~u32{0};  // no switch

// Whether a trigger acts after the record, so that the event itself is still recorded.
constexpr bool acts_after(TriggerKind kind) { return kind == TriggerKind::trace_off; }
constexpr bool changes_program(TriggerKind kind) { return kind >= TriggerKind::override_return; }
constexpr bool turns_switch(TriggerKind kind) { return kind <= TriggerKind::disable_event; }
// Whether what it does is seen outside of the hit's own record, and may not be done twice for one hit.
constexpr bool tells_others(TriggerKind kind) { return turns_switch(kind) || kind == TriggerKind::snapshot; }
constexpr u32 wanted_state(TriggerKind kind) {
  return kind == TriggerKind::trace_off || kind == TriggerKind::disable_event ? kSwitchOff : kSwitchOn;
}

}  // namespace uprobe::shared
