// SPDX-License-Identifier: MIT
// See calls.h.
#include "cli/calls.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <iterator>
#include <utility>

#include "cli/text.h"
#include "cli/usage.h"
#include "engine/output/json_text.h"

namespace uprobe::cli {
namespace {

using Cells = std::vector<std::string>;

constexpr std::array kColumns = {"calls", "returns", "total", "self", "mean", "p50", "p90", "p99", "max"};
// In which a narrow table does without the columns.
constexpr std::array<std::size_t, kColumns.size()> kDropOrder = {6, 5, 1, 8, 7, 4, 3, 0, 2};

// Three significant digits: "812 ns", "1.23 us", "45.6 ms", "1234 s".
std::string time_text(std::uint64_t nanoseconds) {
  constexpr std::array kUnits = {"ns", "us", "ms", "s"};
  if (nanoseconds < 1000) return std::to_string(nanoseconds) + " ns";
  auto value = static_cast<double>(nanoseconds);
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  char text[32];
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text, sizeof text, "%.*f %s", digits, value, kUnits[unit]);
  return text;
}

Cells cells_of(const CallSummary& row) {
  Cells cells = {grouped(row.calls), grouped(row.returns)};
  if (row.returns == row.untimed) {
    cells.resize(kColumns.size(), "-");
    return cells;
  }
  cells.push_back(time_text(row.total_ns));
  cells.push_back(row.self_ns ? time_text(*row.self_ns) : "?");
  for (const std::uint64_t time : {row.mean_ns, row.p50_ns, row.p90_ns, row.p99_ns, row.max_ns})
    cells.push_back(time_text(time));
  return cells;
}

// The columns of a table.
struct Shape {
  std::vector<std::size_t> widths;            // of the columns of kColumns
  std::array<bool, kColumns.size()> shown{};  // others are left out
  std::size_t process = 0, function = 0;      // of the names; 0: there are no processes
};

// The first bytes of a text, as many as fit; what is cut ends in two dots.
std::string cut(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  if (most < 4) return text.substr(0, most);
  std::size_t end = most - 2;
  while (end != 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "..";
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string line_of(const Cells& cells, const Shape& shape, const std::string& process, const std::string& function) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i)
    if (shape.shown[i]) line += std::string(shape.widths[i] - cells[i].size(), ' ') + cells[i] + "  ";
  if (shape.process != 0) line += padded(cut(process, shape.process), shape.process) + "  ";
  return line + cut(function, shape.function) + "\n";
}

std::string process_name(const CallSummary& row) {
  if (!row.process) return {};
  if (row.process->id == 0) return "(others)";
  return escape(row.process->name) + "-" + std::to_string(row.process->id);
}

std::size_t column_of(CallOrder order) {
  switch (order) {
    case CallOrder::calls:
      return 0;
    case CallOrder::self:
      return 3;
    case CallOrder::mean:
      return 4;
    case CallOrder::p99:
      return 7;
    case CallOrder::longest:
      return 8;
    case CallOrder::total:
      break;
  }
  return 2;
}

// Leaves out columns until the names have their room, or enough of it.
void narrow(Shape& shape, CallOrder order, std::size_t columns) {
  constexpr std::size_t kEnough = 20, kLeast = 4;
  const auto room_for_names = [&] {
    std::size_t used = shape.process == 0 ? 0 : shape.process + 2;
    for (std::size_t i = 0; i < kColumns.size(); ++i) used += shape.shown[i] ? shape.widths[i] + 2 : 0;
    return used < columns ? columns - used : 0;
  };
  shape.process = std::min(shape.process, std::max(columns / 3, kLeast));
  for (const std::size_t column : kDropOrder) {
    if (room_for_names() >= std::min(shape.function, kEnough)) break;
    if (column != column_of(order)) shape.shown[column] = false;
  }
  shape.function = std::min(shape.function, std::max(room_for_names(), kLeast));
}

Shape shape_of(const std::vector<Cells>& rows, const std::vector<CallSummary>& calls, CallOrder order,
               std::size_t columns) {
  Shape shape;
  shape.shown.fill(true);
  for (const char* column : kColumns) shape.widths.push_back(std::string(column).size());
  for (const Cells& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) shape.widths[i] = std::max(shape.widths[i], row[i].size());
  shape.function = std::string("function").size();
  for (const CallSummary& call : calls) {
    shape.function = std::max(shape.function, escape(call.event).size());
    if (call.process)
      shape.process = std::max({shape.process, process_name(call).size(), std::string("process").size()});
  }
  if (columns != kAnyWidth) narrow(shape, order, columns);
  return shape;
}

// Losses of the whole table, in words.
std::string notes_on(const std::vector<CallSummary>& rows) {
  CallSummary sum;
  for (const CallSummary& row : rows)
    sum.abandoned += row.abandoned, sum.unfollowed += row.unfollowed, sum.untimed += row.untimed;
  std::string text;
  if (sum.abandoned != 0)
    text +=
        counted(sum.abandoned, "call", "calls") +
        " did not return: left by an exception or longjmp, or under way at the end; their time is their callers' own\n";
  if (sum.unfollowed != 0) text += counted(sum.unfollowed, "call", "calls") + " could not be followed to the return\n";
  if (sum.untimed != 0)
    text += counted(sum.untimed, "return", "returns") + " without a known time: counted, and in no other column\n";
  return text;
}

std::uint64_t sort_key(const CallSummary& row, CallOrder order) {
  switch (order) {
    case CallOrder::calls:
      return row.calls;
    case CallOrder::self:
      return row.self_ns.value_or(0);
    case CallOrder::mean:
      return row.mean_ns;
    case CallOrder::p99:
      return row.p99_ns;
    case CallOrder::longest:
      return row.max_ns;
    case CallOrder::total:
      break;
  }
  return row.total_ns;
}

std::string process_json(const CallSummary::Process& process) {
  if (process.id == 0) return ",\"pid\":null,\"process\":null";
  return ",\"pid\":" + std::to_string(process.id) + ",\"process\":" + format::json_of(process.name);
}

bool was_called(const CallSummary& row) { return row.calls != 0 || row.returns != 0; }

}  // namespace

bool sums_calls(const Options& options) { return options.calls != CallSums::none; }

bool records_calls(const Options& options) { return options.calls != CallSums::alone; }

// --control SESSION --summary
Status settle_asked(const Options& options) {
  if (!options.summary_file.empty())
    return usage("--control prints the table on standard output, and --summary-file is for a session that starts");
  return ok();
}

Status settle_calls(const Options& options) {
  if (options.summary_by_process && (!sums_calls(options) || !options.control.empty()))
    return usage("--summary-by is for a session that begins with -c, -C or --top");
  if (!sums_calls(options)) {
    if (options.summary_file.empty()) return ok();
    return usage("--summary-file is for the table of -c, and -c is missing");
  }
  if (!options.control.empty() && !records_calls(options) && !options.top) return settle_asked(options);
  const std::string option = records_calls(options) ? "-C" : "-c";
  if (!is_for_a_run(options)) return usage(option + " sums up the calls of a program that runs");
  if (options.strict) return usage(option + " does not go with --strict, which has the kernel's language alone");
  if (options.top && options.daemonize) return usage("--top needs the terminal, and -D leaves it to the program");
  if (options.daemonize && options.summary_file.empty())
    return usage("with -D the table of " + option + " needs a file", "--summary-file=FILE");
  if (records_calls(options)) return ok();
  if (options.stacks) return usage("-c records nothing, and -k is for records", "-C does both");
  if (records(options)) return usage("-c records nothing, and --record would be empty", "-C does both");
  if (!options.output.empty())
    return usage("-c records nothing, and -o is for records", "--summary-file=FILE, or -C for both");
  if (options.max_events != 0)
    return usage("-c records nothing, and -n counts records", "-d TIME ends the tracing too");
  const auto& all = options.sources;
  const auto has_filter = [](const ProbeSource& source) { return source.filter.has_value(); };
  if (std::any_of(all.begin(), all.end(), has_filter))
    return usage("-c sums up all calls of a function, and --filter chooses records", "-C does both");
  return ok();
}

void add_sums(Definitions& definitions, bool keeps_others) {
  Definitions sums;
  for (std::size_t i = 0; i < definitions.list.size(); ++i) {
    Definition& one = definitions.list[i];
    sums.list.push_back({.text = one.text, .default_object = one.default_object, .sums_calls = true});
    if (!keeps_others) sums.list.back().triggers = std::move(one.triggers);
    sums.places.push_back(definitions.places[i]);
  }
  if (!keeps_others) return void(definitions = std::move(sums));
  std::move(sums.list.begin(), sums.list.end(), std::back_inserter(definitions.list));
  std::move(sums.places.begin(), sums.places.end(), std::back_inserter(definitions.places));
}

std::string render_calls(std::vector<CallSummary> calls, CallOrder order, std::size_t columns) {
  const auto never = std::stable_partition(calls.begin(), calls.end(), was_called);
  const auto unreached = static_cast<std::size_t>(calls.end() - never);
  calls.erase(never, calls.end());
  std::ranges::stable_sort(calls, std::greater(), [&](const CallSummary& call) { return sort_key(call, order); });
  std::vector<Cells> rows;
  rows.reserve(calls.size());
  for (const CallSummary& call : calls) rows.push_back(cells_of(call));
  const Shape shape = shape_of(rows, calls, order, columns);
  std::string text = rows.empty() ? "" : line_of({kColumns.begin(), kColumns.end()}, shape, "process", "function");
  for (std::size_t i = 0; i < rows.size(); ++i)
    text += line_of(rows[i], shape, process_name(calls[i]), escape(calls[i].event));
  if (unreached != 0) text += counted(unreached, "function", "functions") + " never called\n";
  return text + notes_on(calls);
}

std::string render_calls_json(const std::vector<CallSummary>& calls) {
  std::string text = "[";
  for (const CallSummary& row : calls) {
    text += text.size() == 1 ? "\n " : ",\n ";
    text += R"({"event":)" + format::json_of(row.event) + R"(,"place":)" + format::json_of(row.place);
    if (row.process) text += process_json(*row.process);
    const auto add = [&](const char* name, std::uint64_t value) {
      text += std::string(",\"") + name + "\":" + std::to_string(value);
    };
    add("calls", row.calls), add("returns", row.returns), add("abandoned", row.abandoned);
    add("unfollowed", row.unfollowed), add("untimed", row.untimed), add("total_ns", row.total_ns);
    text += ",\"self_ns\":" + (row.self_ns ? std::to_string(*row.self_ns) : std::string("null"));
    add("mean_ns", row.mean_ns), add("p50_ns", row.p50_ns), add("p90_ns", row.p90_ns);
    add("p99_ns", row.p99_ns), add("max_ns", row.max_ns);
    text += "}";
  }
  return text + (calls.empty() ? "]\n" : "\n]\n");
}

}  // namespace uprobe::cli
