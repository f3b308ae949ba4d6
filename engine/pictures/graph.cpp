// SPDX-License-Identifier: MIT
#include "engine/pictures/graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/output/digits.h"
#include "engine/output/escape.h"

namespace uprobe::format {

namespace {

constexpr std::size_t kTaskColumns = 16, kTidColumns = 7, kTimeColumns = 14, kLatencyColumns = 10;
constexpr std::size_t kMostIndent = 64;  // levels
constexpr std::size_t kMostHeld = std::size_t{4} << 20, kMostHeldOfAll = std::size_t{64} << 20;
constexpr std::string_view kHeader =
    "#           TASK-TID         TIMESTAMP       LATENCY  CALLS\n"
    "#              | |              |               |       |\n";

std::string text_of(const Buffer& buffer) { return std::string(buffer.view()); }

std::string padded(std::string text, std::size_t columns) {
  return std::string(columns - std::min(columns, text.size()), ' ') + text;
}

// Seconds with six digits, rounded as in the text.
std::string time_text(std::uint64_t ns) {
  const std::uint64_t microseconds = ns / 1000 + (ns % 1000 >= 500 ? 1 : 0);
  std::array<char, 6> digits{};
  put_six(digits.data(), static_cast<std::uint32_t>(microseconds % 1'000'000));
  return std::to_string(microseconds / 1'000'000) + "." + std::string(digits.data(), digits.size());
}

// Microseconds with three digits.
std::string latency_text(std::uint64_t ns) {
  const std::string rest = std::to_string(ns % 1000);
  return padded(std::to_string(ns / 1000) + "." + std::string(3 - rest.size(), '0') + rest, kLatencyColumns) + " us";
}

}  // namespace

void GraphFormatter::add(const program::EventLayout& layout) {
  Event& event = events_.emplace_back(layout);
  Buffer name;
  add_text(name, shown_name(layout), options_);
  event.name = name.view();
  roles_.add(layout);
}

void GraphFormatter::header(Buffer& out) { out.add(kHeader); }

std::string GraphFormatter::task_text(std::uint32_t tid, std::string_view comm) const {
  Buffer name;
  add_text(name, comm, options_);
  std::string number = std::to_string(tid);
  number.resize(std::max(number.size(), kTidColumns), ' ');
  return padded(text_of(name), kTaskColumns) + "-" + number + " ";
}

std::string GraphFormatter::values_text(const trace::EventRecord& record, Values& values) const {
  Buffer text;
  for (const program::Field& field : events_[record.type].fields()) {
    if (text.size() != 0) text.add(", ");
    add_text(text, field.name, options_);
    text.add("=");
    add_field(text, field, values, record, options_, true);
  }
  return text_of(text);
}

std::string GraphFormatter::call_text(const trace::EventRecord& record, Values& values) const {
  return events_[record.type].name + "(" + values_text(record, values) + ")";
}

// One value stands alone.
std::string GraphFormatter::result_text(const trace::EventRecord& record, Values& values) const {
  const auto fields = events_[record.type].fields();
  if (fields.empty()) return {};
  if (fields.size() > 1) return " = {" + values_text(record, values) + "}";
  Buffer text;
  text.add(" = ");
  add_field(text, fields.front(), values, record, options_, true);
  return text_of(text);
}

void GraphFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  if (record.type >= events_.size()) return;
  last_ = std::max(last_, record.ns);
  Values values(events_[record.type], record, options_, padded_);
  const auto left = [&](Thread& thread, const Call& call) { leave_call(call, thread, out); };
  Thread& thread = threads_.thread_of(record, left);
  thread.more.task = task_text(record.tid, comm);
  if (!thread.open.empty()) show_if_long(last_ - std::min(last_, thread.open.front().ns), thread, out);
  switch (roles_.role(record.type)) {
    case CallEvents::Role::entry:
      begin_call(thread, out);
      threads_.enter(thread, {.ns = record.ns, .type = record.type, .data = call_text(record, values)}, left);
      thread.more.is_waiting = true;
      return;
    case CallEvents::Role::exit:
      if (const auto call = threads_.end_of(thread, record.type, left))
        return end_call(*call, record.ns, result_text(record, values), thread, out);
      [[fallthrough]];
    case CallEvents::Role::hit:
      return add_hit(record, values, thread, out);
  }
}

// Adds the line of the innermost call, if it waits: something is inside of the call.
void GraphFormatter::begin_call(Thread& thread, Buffer& out) {
  if (!std::exchange(thread.more.is_waiting, false) || thread.open.empty()) return;
  const Call& call = thread.open.back();
  add_line({.ns = call.ns, .latency = {}, .depth = thread.open.size() - 1}, call.data + " {", thread, out);
}

void GraphFormatter::end_call(const Call& call, std::uint64_t ns, const std::string& result, Thread& thread,
                              Buffer& out) {
  const std::uint64_t latency = ns - std::min(ns, call.ns);
  const std::size_t depth = thread.open.size();
  if (depth == 0) show_if_long(latency, thread, out);
  const bool is_leaf = std::exchange(thread.more.is_waiting, false);
  if (is_leaf)
    add_line({.ns = call.ns, .latency = latency, .depth = depth}, call.data + result, thread, out);
  else
    add_line({.ns = ns, .latency = latency, .depth = depth}, "}" + result + " /* " + events_[call.type].name + " */",
             thread, out);
  if (depth == 0) forget_held(thread.more);
}

// Calls without a return have lasted until now at least.
void GraphFormatter::leave_call(const Call& call, Thread& thread, Buffer& out) {
  const std::size_t depth = thread.open.size();
  if (depth == 0) show_if_long(last_ - std::min(last_, call.ns), thread, out);
  if (std::exchange(thread.more.is_waiting, false))
    add_line({.ns = call.ns, .latency = {}, .depth = depth}, call.data + " {", thread, out);
  const std::string mark = "} /* " + events_[call.type].name + ": no return was recorded */";
  add_line({.ns = last_, .latency = {}, .depth = depth}, mark, thread, out);
  if (depth == 0) forget_held(thread.more);
}

void GraphFormatter::add_hit(const trace::EventRecord& record, Values& values, Thread& thread, Buffer& out) {
  begin_call(thread, out);
  const Event& event = events_[record.type];
  const auto latency = event.layout.is_return ? recorded_latency(event, values) : std::nullopt;
  std::string text =
      event.layout.is_return ? event.name + "()" + result_text(record, values) : call_text(record, values);
  if (roles_.role(record.type) == CallEvents::Role::exit) text += " /* no entry was recorded */";
  const bool is_outermost = thread.open.empty();
  if (is_outermost && latency) show_if_long(*latency, thread, out);
  add_line({.ns = record.ns, .latency = latency, .depth = thread.open.size()}, text, thread, out);
  if (is_outermost) forget_held(thread.more);
}

void GraphFormatter::add_line(const Line& line, std::string_view text, Thread& thread, Buffer& out) {
  std::string whole = thread.more.task + padded(time_text(line.ns), kTimeColumns);
  whole += line.latency ? " " + latency_text(*line.latency) : std::string(kLatencyColumns + sizeof " us", ' ');
  whole.append(2 + 2 * std::min(line.depth, kMostIndent), ' ').append(text) += '\n';
  if (options_.min_latency == 0 || thread.more.is_shown) return out.add(whole);
  hold(whole, thread.more);
}

void GraphFormatter::hold(std::string_view line, State& state) {
  if (state.held.size() + line.size() > kMostHeld || held_ + line.size() > kMostHeldOfAll) return void(++state.dropped);
  state.held += line;
  held_ += line.size();
}

void GraphFormatter::show_if_long(std::uint64_t latency, Thread& thread, Buffer& out) {
  if (options_.min_latency == 0 || thread.more.is_shown || latency < options_.min_latency) return;
  thread.more.is_shown = true;
  show_held(thread, out);
}

void GraphFormatter::show_held(Thread& thread, Buffer& out) {
  State& state = thread.more;
  out.add(state.held);
  if (state.dropped != 0)
    out.add(state.task + "/* " + std::to_string(state.dropped) + " lines were too many to wait for the latency */\n");
  held_ -= state.held.size();
  state.held.clear();
  state.dropped = 0;
}

// An outermost call is over.
void GraphFormatter::forget_held(State& state) {
  held_ -= state.held.size();
  state.held.clear();
  state.dropped = 0;
  state.is_shown = false;
}

void GraphFormatter::end(std::span<const Total>, Buffer& out) {
  threads_.leave_all([&](Thread& thread, const Call& call) { leave_call(call, thread, out); });
}

}  // namespace uprobe::format
