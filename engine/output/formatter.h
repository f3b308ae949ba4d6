// SPDX-License-Identifier: MIT
// The interface of an output format, which turns records into bytes, one after the other. One format per file.
#pragma once

#include <string_view>

#include "engine/output/buffer.h"
#include "engine/trace/event_record.h"

namespace uprobe::format {

// Appends to `out`, which the caller writes and clears at any time between calls. A record is hostile input: for any payload
// the formatter reads nothing outside of it.
class Formatter {
 public:
  Formatter() = default;
  Formatter(const Formatter&) = delete;
  Formatter& operator=(const Formatter&) = delete;
  virtual ~Formatter() = default;

  // Called before the first record.
  virtual void header(Buffer& out) = 0;
  virtual void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) = 0;
};

}  // namespace uprobe::format
