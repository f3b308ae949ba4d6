// SPDX-License-Identifier: MIT
// ftrace's `format` file of an event: the fields of its records and how they print. Readers of raw records (trace-cmd,
// perf, libtraceevent) take it as it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/program/layout.h"

namespace uprobe::program {

struct FormatField {
  std::string declaration;  // "u8 arg1[]"
  std::uint32_t offset = 0, size = 0;
  bool is_signed = false;
};

// Who reads the file. The kernel's own arrays of numbers are declared without their number of elements, and small signed numbers
// print as `%d`; libtraceevent finds no element then, and no sign.
enum class FormatReader { kernel, libtraceevent };

// Without the four common fields: __probe_ip (or __probe_func, __probe_ret_ip), then the arguments.
std::vector<FormatField> format_fields(const EventLayout& layout, FormatReader reader = FormatReader::kernel);

// The text after "print fmt: ".
std::string print_format(const EventLayout& layout, FormatReader reader = FormatReader::kernel,
                         const std::string& last_words = {});

// The whole file; `id` is the common_type of the event's records, `last_words` stand after the fields of each.
std::string format_file(const EventLayout& layout, unsigned id, FormatReader reader = FormatReader::kernel,
                        const std::string& last_words = {});

}  // namespace uprobe::program
