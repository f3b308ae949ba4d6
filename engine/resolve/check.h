// SPDX-License-Identifier: MIT
// Checks definitions as a write(2) to an empty uprobe_events would: returns the listing, each event's format, or the first
// mistake. Nothing is planned and no process exists. Part of the facade, like session.h.
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
  std::string file;                          // the complete text of the event's format file
};

struct CheckReport {
  std::optional<Error> error;  // of the first refused line; later lines were not checked
  std::string option;          // the option with the error, "--filter" or "--trigger"; empty: the definition itself
  bool is_kernels = false;     // text and column of the error are those that a kernel would log
  std::size_t write = 0;       // the write with the error,
  int line = 0;                // and its line there, from 1
  std::vector<std::string> listing;  // the definitions afterwards, also after an error
  std::vector<EventFormat> formats;
  std::vector<std::string> notes;  // functions that a pattern matched and that cannot be probed
};

struct CheckOptions {
  bool strict = false;
  spec::Style style = spec::Style::event;  // 2009: the listing is the kprobe tracer's, and an empty write clears
};

// Each text is one write of one or several lines. Strict: accepts only the kernel's dialect, opens no file and looks for no
// program.
CheckReport check_definitions(const std::vector<Definition>& writes, const CheckOptions& options);

}  // namespace uprobe
