// SPDX-License-Identifier: MIT
// Records of one ring that one task has made one after the other, as the reader hands them on to a recorder: copied as they are,
// with all that a recording has to know of their task said once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace uprobe::trace {

struct RecordRun {
  std::uint32_t ring = 0;  // among the rings of all live parts
  std::uint32_t tid = 0;   // as in EventRecord
  std::uint32_t pid = 0;
  std::uint32_t count = 0;
  std::string_view comm = {};  // the name at the time of each of them
  // Whole records (shared::RecordHead and what follows), with CLOCK_MONOTONIC in nanoseconds as `tsc`, and none of the flags that
  // ask the reader for something. The reader's memory, valid during the call only.
  std::span<const std::uint8_t> records = {};
};

using RunSink = std::function<void(const RecordRun&)>;

}  // namespace uprobe::trace
