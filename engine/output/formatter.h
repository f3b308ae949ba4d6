// SPDX-License-Identifier: MIT
// What an output format is: it turns records into bytes, one after the other. One format per file.
#pragma once

#include <string_view>

#include "engine/output/buffer.h"
#include "engine/trace/event_record.h"

namespace uprobe::format {

// Appends to `out`, which the caller writes and clears when it likes. A record is hostile input: whatever its payload
// says, a formatter stays inside of it.
class Formatter {
 public:
  Formatter() = default;
  Formatter(const Formatter&) = delete;
  Formatter& operator=(const Formatter&) = delete;
  virtual ~Formatter() = default;

  // Before the first record, and after the last one.
  virtual void header(Buffer& out) = 0;
  virtual void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) = 0;
  virtual void footer(Buffer& out) { static_cast<void>(out); }
};

}  // namespace uprobe::format
