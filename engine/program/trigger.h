// SPDX-License-Identifier: MIT
// Triggers: the kernel's language for events/GROUP/EVENT/trigger.
//
//   COMMAND[:COUNT] [if FILTER]
//   COMMAND   traceon, traceoff, stacktrace, enable_event:GROUP:EVENT, disable_event:GROUP:EVENT
//             return=..., set ..., delay=..., signal=...     engine/program/action.h
//   hist:ATTRIBUTES [if FILTER]    engine/program/histogram.h
//
// As in the kernel (Linux 6.18, kernel/trace/trace_events_trigger.c) an event has one of traceon and traceoff, one stacktrace,
// and one trigger for each event that it enables or disables. The kernel refuses most mistakes without a text: the texts are
// the tool's, the errno is the kernel's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/program/action.h"
#include "engine/program/filter.h"
#include "engine/program/histogram.h"
#include "engine/shared/trigger.h"

namespace uprobe::program {

struct TriggerSpec {
  shared::TriggerKind kind = shared::TriggerKind::trace_on;
  std::string group, event;                           // of enable_event and disable_event
  std::size_t target_at = 0;                          // where the two stand in the text
  std::size_t attributes_at = 0, attributes_end = 0;  // of a histogram, in the text
  Action action = {};                                 // of those that change the program
  std::uint64_t count = shared::kUnlimited;
  std::string filter;         // empty: none
  std::size_t filter_at = 0;  // in the text, for carets
};

Result<TriggerSpec> parse_trigger(std::string_view text);

// Whether the kernel refuses one of them in addition to the other.
bool exclude_each_other(const TriggerSpec& a, const TriggerSpec& b);

// The tests of the trigger's filter, over the payload of its event. Error::where is `text`, the parsed trigger.
Result<CompiledFilter> compile_condition(const TriggerSpec& spec, std::string_view text, const EventLayout& layout,
                                         const FilterContext& context);

// A compiled trigger, as a session needs it.
struct TriggerProgram {
  shared::TriggerKind kind = shared::TriggerKind::trace_on;
  std::uint32_t target = 0;  // number of a switch, of a histogram, or of a register
  std::uint64_t count = shared::kUnlimited;
  CompiledFilter condition;
  // Of those that change the program: shared::Trigger.
  std::uint64_t value = 0;
  std::uint32_t error_number = 0;
  shared::ErrnoPlace errno_place = shared::ErrnoPlace::none;
  std::uint64_t errno_at = 0;
  std::uint32_t libc = 0;
};

}  // namespace uprobe::program
