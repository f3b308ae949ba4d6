// SPDX-License-Identifier: MIT
// One recorded event, as the reader hands it to the output formats.
#pragma once

#include <cstdint>
#include <span>

#include "engine/shared/task_number.h"

namespace uprobe::trace {

struct EventRecord {
  std::uint64_t ns = 0;          // CLOCK_MONOTONIC
  std::uint32_t tid = 0;         // in the tool's PID namespace, as the target reports it; such a thread need not exist
  std::uint32_t pid = 0;         // the thread's process, likewise; 0: it ended before it was looked at
  shared::TaskNumber task = {};  // the task that made the record
  std::uint16_t cpu = 0;
  std::uint16_t type = 0;                    // the event's id, below Area::event_count()
  std::uint16_t flags = 0;                   // shared::kRecord*
  std::span<const std::uint8_t> payload;     // begins with PayloadHead; the reader's memory, valid during the call only
  std::span<const std::uint8_t> stack = {};  // of kRecordStack, see stack_copy.h; likewise
};

}  // namespace uprobe::trace
