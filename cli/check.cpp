// SPDX-License-Identifier: MIT
// Prints what definitions define. See check.h.
#include "cli/check.h"

#include <cstring>

namespace uprobe::cli {

namespace {

constexpr std::string_view kKernelPrefix = "trace_uprobe: ";  // as in error_log, where it names the subsystem
constexpr std::string_view kFilterPrefix = "parse_error: ";   // as in a filter file after a write
constexpr std::string_view kOwnPrefix = "uprobe-run: ";

std::string json_string(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      result += std::string("\\u00") + kDigits[byte >> 4] + kDigits[byte & 15];
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

template <class List, class Render>
std::string json_list(const List& list, Render render) {
  std::string text;
  for (const auto& one : list) text += (text.empty() ? "" : ", ") + render(one);
  return "[" + text + "]";
}

std::string json_field(const program::FormatField& field) {
  return "[" + json_string(field.declaration) + ", " + std::to_string(field.offset) + ", " +
         std::to_string(field.size) + ", " + (field.is_signed ? "1" : "0") + "]";
}

// The recorded formats omit all common_... fields; an argument can have such a name too (common_cpu).
bool is_common(const program::FormatField& field) { return field.declaration.find(" common_") != std::string::npos; }

std::string json_format(const EventFormat& format) {
  std::vector<program::FormatField> fields = format.fields;
  std::erase_if(fields, is_common);
  return "{\"event\": " + json_string(format.event) + ", \"print_fmt\": " + json_string(format.print_format) +
         ", \"fields\": " + json_list(fields, json_field) + "}";
}

// uprobe_events has no errno for missing files and symbols; it would be EINVAL, as for every symbol.
std::string json_errno(const Error& error) {
  const char* name = ::strerrorname_np(error.err == 0 ? EINVAL : error.err);
  return json_string(name == nullptr ? std::to_string(error.err) : name);
}

std::string json_error(const CheckReport& report, bool strict) {
  const Error& error = *report.error;
  const bool silent = strict && !report.is_kernels;
  std::string text = "\"errno\": " + json_errno(error) + ", \"error\": ";
  const bool in_filter = report.option == "--filter";
  const std::string_view prefix = in_filter           ? (error.column < 0 ? "" : kFilterPrefix)
                                  : report.is_kernels ? kKernelPrefix
                                                      : kOwnPrefix;
  text += silent ? "null" : json_string(std::string(prefix) + error.text);
  return text + ", \"caret\": " + (silent || error.column < 0 ? "null" : std::to_string(error.column));
}

}  // namespace

std::string render_check_json(const CheckReport& report, bool strict) {
  return std::string("{\"accepted\": ") + (report.error ? "false" : "true") + ", " +
         (report.error ? json_error(report, strict) : "\"errno\": null, \"error\": null, \"caret\": null") +
         ", \"listing\": " + json_list(report.listing, json_string) +
         ", \"formats\": " + json_list(report.formats, json_format) + "}\n";
}

std::string render_listing(const CheckReport& report) {
  std::string text;
  for (const std::string& line : report.listing) text += line + "\n";
  return text;
}

std::string render_formats(const CheckReport& report) {
  std::string text;
  for (const EventFormat& format : report.formats) text += (text.empty() ? "" : "\n") + format.file;
  return text;
}

}  // namespace uprobe::cli
