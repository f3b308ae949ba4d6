// SPDX-License-Identifier: MIT
// Records of task names, in the rings among the records of hits.
//
// A thread that ends within milliseconds has no name in /proc any more when its hits are printed. So the agent records the name
// of each thread that it sees begin or renamed, and the reader learns it before it prints later hits.
#pragma once

#include "engine/shared/filter.h"
#include "engine/shared/session_area.h"

namespace uprobe::shared {

// Of RecordHead::flags: the record belongs to no event and is a NameRecord.
inline constexpr u16 kRecordTaskName = 32;

// PayloadHead::type: the thread has just begun.
inline constexpr u16 kTaskBegins = 1;

// Without `name` (by RecordHead::length): the thread may have a new name, which the agent does not know.
struct NameRecord {
  RecordHead head;
  PayloadHead payload;  // the thread as in every record (task_number.h); `type`: kTaskBegins or 0; `ip`: its process in
                        // its own namespace, 0: not known
  u8 name[kNameBytes];
};
static_assert(sizeof(NameRecord) == 56 && offsetof(NameRecord, name) % 8 == 0);

}  // namespace uprobe::shared
