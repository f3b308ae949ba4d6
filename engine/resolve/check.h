// SPDX-License-Identifier: MIT
// Definitions as a write(2) to an empty uprobe_events: what would be listed, each event's format, or the first mistake.
// Nothing is planned and no process exists. Of the facade, as session.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/program/format_file.h"
#include "engine/types.h"

namespace uprobe {

struct EventFormat {
  std::string event;  // "GROUP/EVENT"
  std::string print_format;
  std::vector<program::FormatField> fields;  // without the common ones
  std::string file;                          // the whole text of the event's format file
};

struct CheckReport {
  std::optional<Error> error;        // of the first line that is refused; the lines after it were not looked at
  std::string option;                // the option it is in, "--filter" or "--trigger"; empty: the definition itself
  bool is_kernels = false;           // the error's text is what a kernel would log, and its column where
  std::size_t write = 0;             // which write the error is in,
  int line = 0;                      // and which of its lines, from 1
  std::vector<std::string> listing;  // what is defined afterwards, also after an error
  std::vector<EventFormat> formats;
  std::vector<std::string> notes;  // functions that a pattern matched and that cannot be probed
};

struct CheckOptions {
  bool strict = false;
  spec::Style style = spec::Style::event;  // 2009: the listing is that of the kprobe tracer, and an empty write clears
};

// Each text is written as it is, several lines if it has them. Strict: the kernel's dialect and nothing else; no file is
// opened then, and no program looked for.
CheckReport check_definitions(const std::vector<Definition>& writes, const CheckOptions& options);

}  // namespace uprobe
