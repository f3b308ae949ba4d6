// SPDX-License-Identifier: MIT
// What the two worlds have in common, part 9: triggers, and what they switch.
//
// In a session in which events can be off there is a switch for the whole session and one for each event (all probes of an
// event share it). A trigger belongs to an event: each hit of it, or each for which the trigger's tests hold, turns a switch. The
// agent does that before the hit is recorded, but for trace_off, which the event that causes it still sees. A trigger of the kind
// `histogram` turns nothing: it adds the hit to a histogram (engine/shared/histogram.h), also while the event is off.
// One of the kind `stack` puts the stack of the hit behind the payload of its record. One whose tests ask for a name that may not
// be fetched (a seccomp filter) does nothing, and is counted: nobody could do it later.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

enum class TriggerKind : u32 { trace_on, trace_off, enable_event, disable_event, histogram, stack };
inline constexpr u32 kTriggerKindCount = 6;

inline constexpr u64 kUnlimited = ~u64{0};  // of AreaHeader::left_offset

struct Trigger {
  u32 kind;                    // TriggerKind
  u32 target;                  // of enable_event and disable_event: the number of a switch; of a histogram
  u32 first_test, test_count;  // engine/shared/filter.h; 0: it acts at each hit
};
static_assert(sizeof(Trigger) == 16);

inline constexpr u32 kSwitchOn = 0, kSwitchOff = 1;
inline constexpr u32 kNoSwitch = ~u32{0};  // instead of the number of one

// Whether a trigger acts behind the record, so that the event itself is still seen.
constexpr bool acts_behind(TriggerKind kind) { return kind == TriggerKind::trace_off; }
constexpr bool turns_switch(TriggerKind kind) { return kind <= TriggerKind::disable_event; }
constexpr u32 wanted_state(TriggerKind kind) {
  return kind == TriggerKind::trace_off || kind == TriggerKind::disable_event ? kSwitchOff : kSwitchOn;
}

}  // namespace uprobe::shared
