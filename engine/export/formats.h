// SPDX-License-Identifier: MIT
// The table of output formats. A new one is a file of its own, its line here, and its test.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/output/formatter.h"

namespace uprobe::format {

// What a format writes to: a stream of bytes, a file at any place of it, or a folder (engine/export/files.h).
enum class Target { stream, file, folder };

struct Format {
  std::string_view name;
  std::unique_ptr<Formatter> (*make)(const Options& options);
  bool takes_text = false;        // lines of text can be put between and after the records
  bool has_fixed_fields = false;  // an event that is added later can have no other fields
  bool tells_losses = false;
  bool is_document = false;  // one whole, which stands in a file of its own
  bool is_binary = false;
  bool shows_counters = false;
  bool shows_latency = false;  // of calls, and so can leave out short ones
  bool shows_foreign = false;  // events of other tracers (text has their lines)
  Target target = Target::stream;
};

std::span<const Format> formats();
// Null: there is none of that name.
const Format* format_called(std::string_view name);
// "text, json, csv"
std::string format_names();

}  // namespace uprobe::format
