// SPDX-License-Identifier: MIT
// Reads a trigger word by word, as the kernel's strsep does.
#include "engine/program/trigger.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "engine/lex/number.h"
#include "engine/program/filter_term.h"

namespace uprobe::program {
namespace {

using shared::TriggerKind;

constexpr std::array<std::pair<std::string_view, TriggerKind>, 7> kCommands = {{
    {"traceon", TriggerKind::trace_on},
    {"traceoff", TriggerKind::trace_off},
    {"enable_event", TriggerKind::enable_event},
    {"disable_event", TriggerKind::disable_event},
    {"hist", TriggerKind::histogram},
    {"stacktrace", TriggerKind::stack},
    {"snapshot", TriggerKind::snapshot},
}};
constexpr std::string_view kAbsent[] = {"enable_hist", "disable_hist"};

std::string_view stripped(std::string_view text) {
  while (!text.empty() && is_filter_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_filter_space(text.back())) text.remove_suffix(1);
  return text;
}

bool is_switch(TriggerKind kind) { return kind == TriggerKind::enable_event || kind == TriggerKind::disable_event; }

class TriggerReader {
 public:
  explicit TriggerReader(std::string_view text) : text_(text), rest_(stripped(text)) {}

  Result<TriggerSpec> read();

 private:
  std::size_t at() const { return static_cast<std::size_t>(rest_.data() - text_.data()); }
  Error fail(std::size_t column, std::string what) const {
    return Error{.code = Code::usage,
                 .text = std::move(what),
                 .where = std::string(text_),
                 .column = static_cast<int>(column),
                 .help =
                     "traceon, traceoff, stacktrace, snapshot, enable_event:GROUP:EVENT or disable_event:GROUP:EVENT, "
                     "each with :COUNT and ' if FILTER' if wanted; hist:keys=FIELD; with --allow-change return=VALUE, "
                     "set %REGISTER=VALUE, delay=TIME, signal=NAME",
                 .err = EINVAL};
  }
  // Up to one of `ends`, which is read as well; at the end of the text `more` becomes false.
  std::string_view word(std::string_view ends, bool& more);
  Status command(TriggerSpec& spec);
  Status action(std::string_view word, TriggerSpec& spec);
  Status target(std::string_view& parameter, TriggerSpec& spec);
  Status count(std::string_view number, TriggerSpec& spec) const;
  Status condition(TriggerSpec& spec);
  Status attributes(TriggerSpec& spec);

  std::string_view text_, rest_;
};

std::string_view TriggerReader::word(std::string_view ends, bool& more) {
  const std::size_t end = rest_.find_first_of(ends);
  const std::string_view found = rest_.substr(0, end);
  more = end != std::string_view::npos;
  rest_.remove_prefix(more ? end + 1 : rest_.size());
  return found;
}

// What "set" sets is the word after it.
Status TriggerReader::action(std::string_view first, TriggerSpec& spec) {
  std::string_view text = first;
  bool more = false;
  if (spec.kind == TriggerKind::set_register) {
    while (!rest_.empty() && is_filter_space(rest_.front())) rest_.remove_prefix(1);
    text = word(": \t", more);
  }
  auto read = parse_action(spec.kind, text);
  if (read) return spec.action = *read, ok();
  Error error = read.error();
  error.where = text_, error.column += static_cast<int>(text.data() - text_.data());
  return error;
}

Status TriggerReader::command(TriggerSpec& spec) {
  const std::size_t begin = at();
  bool more = false;
  const std::string_view name = word(": \t", more);
  for (const auto& [known, kind] : kCommands)
    if (name == known) return spec.kind = kind, ok();
  if (const auto kind = action_kind(name)) return spec.kind = *kind, action(name, spec);
  if (std::ranges::find(kAbsent, name) != std::end(kAbsent))
    return fail(begin, "the trigger '" + std::string(name) + "' is not available in this version");
  if (name.starts_with('!')) return fail(begin, "there is no trigger to take away: leave it out");
  return fail(begin, "no trigger is called '" + std::string(name) + "'");
}

// "GROUP:EVENT"; a count may follow.
Status TriggerReader::target(std::string_view& parameter, TriggerSpec& spec) {
  const std::size_t begin = static_cast<std::size_t>(parameter.data() - text_.data());
  const std::size_t colon = parameter.find(':');
  if (parameter.empty() || colon == std::string_view::npos) return fail(begin, "GROUP:EVENT is missing");
  spec.target_at = begin;
  spec.group = parameter.substr(0, colon);
  parameter.remove_prefix(colon + 1);
  const std::size_t end = parameter.find(':');
  spec.event = parameter.substr(0, end);
  if (spec.group.empty() || spec.event.empty()) return fail(begin, "GROUP:EVENT is missing");
  if (end == std::string_view::npos) return parameter = {}, ok();
  parameter.remove_prefix(end + 1);
  return count(parameter, spec);
}

// The kernel reads up to the next colon, whatever follows it.
Status TriggerReader::count(std::string_view number, TriggerSpec& spec) const {
  const std::size_t begin = static_cast<std::size_t>(number.data() - text_.data());
  const int err = spec::read_unsigned(number.substr(0, number.find(':')), 0, spec.count);
  if (err == 0) return ok();
  Error error = fail(begin, err == ERANGE ? "the count is too large" : "the count is no number");
  error.err = err;
  return error;
}

Status TriggerReader::condition(TriggerSpec& spec) {
  while (!rest_.empty() && is_filter_space(rest_.front())) rest_.remove_prefix(1);
  if (rest_.empty()) return ok();
  const std::size_t begin = at();
  bool more = false;
  if (word(" \t", more) != "if" || !more) return fail(begin, "'if FILTER' is what may follow");
  spec.filter_at = at();
  spec.filter = rest_;
  return ok();
}

// Up to an "if" between blanks; blanks may stand before it, too.
Status TriggerReader::attributes(TriggerSpec& spec) {
  while (!rest_.empty() && is_filter_space(rest_.front())) rest_.remove_prefix(1);
  spec.attributes_at = at();
  if (rest_.empty()) return fail(at(), "keys= is missing");
  std::size_t end = rest_.size();
  for (std::size_t place = rest_.find("if"); place != std::string_view::npos; place = rest_.find("if", place + 1)) {
    const auto is_blank = [&](std::size_t i) { return i < rest_.size() && (rest_[i] == ' ' || rest_[i] == '\t'); };
    if (place != 0 && !is_blank(place - 1)) continue;
    if (place != 0 && place + 2 < rest_.size() && !is_blank(place + 2)) continue;
    end = place;
    break;
  }
  spec.attributes_end = at() + stripped(rest_.substr(0, end)).size();
  rest_.remove_prefix(end);
  return ok();
}

Result<TriggerSpec> TriggerReader::read() {
  TriggerSpec spec;
  if (const Status known = command(spec); !known) return known.error();
  while (!rest_.empty() && is_filter_space(rest_.front())) rest_.remove_prefix(1);
  const bool has_count = !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9';
  if (spec.kind == TriggerKind::histogram) {
    RETURN_IF_ERROR(attributes(spec));
  } else if (is_switch(spec.kind) || has_count) {
    bool more = false;
    std::string_view parameter = word(" \t", more);
    Status read = is_switch(spec.kind) ? target(parameter, spec) : count(parameter, spec);
    if (!read) return read.error();
  }
  RETURN_IF_ERROR(condition(spec));
  return spec;
}

}  // namespace

Result<TriggerSpec> parse_trigger(std::string_view text) { return TriggerReader(text).read(); }

bool exclude_each_other(const TriggerSpec& a, const TriggerSpec& b) {
  if (a.kind == TriggerKind::histogram || b.kind == TriggerKind::histogram) return false;
  if (shared::changes_program(a.kind) || shared::changes_program(b.kind)) return false;
  const auto one_is = [&](TriggerKind kind) { return (a.kind == kind) != (b.kind == kind); };
  if (one_is(TriggerKind::stack) || one_is(TriggerKind::snapshot)) return false;
  if (is_switch(a.kind) != is_switch(b.kind)) return false;
  return !is_switch(a.kind) || (a.group == b.group && a.event == b.event);
}

Result<CompiledFilter> compile_condition(const TriggerSpec& spec, std::string_view text, const EventLayout& layout,
                                         const FilterContext& context) {
  if (spec.filter_at == 0) return CompiledFilter{};
  auto compiled = compile_filter(layout, spec.filter, context);
  if (compiled) return compiled;
  Error error = compiled.error();
  if (error.column >= 0) error.column += static_cast<int>(spec.filter_at);
  error.where = text;
  return error;
}

}  // namespace uprobe::program
