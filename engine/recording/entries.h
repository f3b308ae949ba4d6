// SPDX-License-Identifier: MIT
// A recording, checked: whatever the bytes are, a record that is handed on is one that a session could have made.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/output/formatter.h"
#include "engine/program/layout.h"
#include "engine/recording/blocks.h"
#include "engine/recording/course_entries.h"
#include "engine/recording/saved_symbols.h"
#include "engine/trace/clocks.h"

namespace uprobe::recording {

struct Settings {
  std::uint32_t flags = 0, string_limit = 0;
  bool has(std::uint32_t flag) const { return (flags & flag) != 0; }
};

// Gets what a recording holds.
class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  // Comes first, with all events, and all readings of the clocks in the order of their times. An error ends the reading.
  virtual Status begin(const Settings& settings, const std::vector<program::EventLayout>& events,
                       const std::vector<trace::ClockReading>& clocks, SavedSymbols& symbols) = 0;
  // In order of time. False: no more are wanted.
  virtual bool hit(const trace::EventRecord& record, std::string_view comm) = 0;
  // Also in order of time, before the hits of the same time.
  virtual void course(const CourseEvent&) {}
  virtual void end(const std::vector<format::Total>& totals) = 0;
};

// Fails where the recording is not whole, after all that is before that place has been handed on.
Status read_recording(const Recording& recording, Listener& listener);

}  // namespace uprobe::recording
