// SPDX-License-Identifier: MIT
// What the two worlds have in common, part 8: names of tasks, among the records.
//
// A thread that ends within milliseconds has no name in /proc any more when its hits are printed. So the agent records the name of each
// thread that it sees begin, or renamed, and the reader learns it before it prints the hits that come later.
#pragma once

#include "engine/shared/filter.h"
#include "engine/shared/session_area.h"

namespace uprobe::shared {

// Of RecordHead::flags: no event's record, but a NameRecord.
inline constexpr u16 kRecordTaskName = 32;

// PayloadHead::type: the thread has just begun.
inline constexpr u16 kTaskBegins = 1;

// Without `name` (RecordHead::length): the thread may have another name from now on, which the agent does not know.
struct NameRecord {
  RecordHead head;
  PayloadHead payload;  // the thread as in every record (task_number.h); `type`: kTaskBegins or 0; `ip`: 0
  u8 name[kNameBytes];
};
static_assert(sizeof(NameRecord) == 56 && offsetof(NameRecord, name) % 8 == 0);

}  // namespace uprobe::shared
