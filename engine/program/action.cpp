// SPDX-License-Identifier: MIT
#include "engine/program/action.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "engine/lex/number.h"
#include "engine/lex/registers.h"
#include "engine/lex/suggest.h"

namespace uprobe::program {
namespace {

using shared::Reg;
using shared::TriggerKind;

constexpr std::array<std::pair<std::string_view, TriggerKind>, 4> kActions = {{
    {"return=", TriggerKind::override_return},
    {"delay=", TriggerKind::delay},
    {"signal=", TriggerKind::send_signal},
    {"call=", TriggerKind::call_back},
}};
constexpr int kMostErrno = 4095;  // MAX_ERRNO of the kernel

Error action_error(std::size_t column, std::string what, std::string help, int err = EINVAL) {
  return Error{.code = Code::usage,
               .text = std::move(what),
               .where = {},
               .column = static_cast<int>(column),
               .help = std::move(help),
               .err = err};
}

Result<std::uint64_t> value_in(std::string_view text, std::size_t column) {
  std::uint64_t value = 0;
  std::int64_t negative = 0;
  const bool has_minus = text.starts_with('-');
  const int err = has_minus ? spec::read_signed(text, 0, negative) : spec::read_unsigned(text, 0, value);
  if (err == 0) return has_minus ? static_cast<std::uint64_t>(negative) : value;
  return action_error(
      column, err == ERANGE ? "the value has more than 64 bits" : "the value '" + std::string(text) + "' is no number",
      "a whole number: -1, 0, 4096, 0xfff", err);
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names, std::string otherwise) {
  const std::string near = spec::nearest(word, names);
  return near.empty() ? std::move(otherwise) : "did you mean '" + near + "'?";
}

Result<std::uint32_t> errno_called(std::string_view name, std::size_t column) {
  std::vector<std::string_view> names;
  for (int number = 1; number <= kMostErrno; ++number) {
    const char* known = ::strerrorname_np(number);
    if (known == nullptr) continue;
    if (name == known) return static_cast<std::uint32_t>(number);
    names.emplace_back(known);
  }
  if (name == "EWOULDBLOCK") return EAGAIN;
  return action_error(column, "no errno is called '" + std::string(name) + "'",
                      did_you_mean(name, names, "a name of errno(3): EIO, ENOMEM, ENOSPC, EACCES, ENOENT, EINTR, ..."));
}

// VALUE[,errno=ENAME], which begins at `column`.
Result<Action> override_in(std::string_view text, std::size_t column) {
  constexpr std::string_view kErrno = "errno=";
  const std::size_t comma = text.find(',');
  const auto value = value_in(text.substr(0, comma), column);
  if (!value) return value.error();
  Action action{.value = *value};
  if (comma == std::string_view::npos) return action;
  const std::string_view rest = text.substr(comma + 1);
  if (!rest.starts_with(kErrno))
    return action_error(column + comma + 1, "'" + std::string(rest) + "' is not errno=ENAME", "return=-1,errno=EIO");
  const auto number = errno_called(rest.substr(kErrno.size()), column + comma + 1 + kErrno.size());
  if (!number) return number.error();
  action.error_number = *number;
  return action;
}

// NUMBER,ADDRESS,COOKIE
Result<Action> callback_in(std::string_view text, std::size_t column) {
  std::array<std::uint64_t, 3> words{};
  std::size_t begin = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t end = i + 1 < words.size() ? std::min(text.find(',', begin), text.size()) : text.size();
    const auto value = value_in(text.substr(begin, end - begin), column + begin);
    if (!value) return value.error();
    words[i] = *value, begin = std::min(end + 1, text.size());
  }
  if (words[0] > shared::kMostCallbacks)
    return action_error(column, "a session has " + std::to_string(shared::kMostCallbacks) + " callbacks at most", {},
                        ERANGE);
  return Action{.value = words[1], .callback = static_cast<std::uint32_t>(words[0]), .cookie = words[2]};
}

bool can_be_set(Reg reg) { return reg != Reg::sp && reg < Reg::ip; }

// For a name that is none of a whole register.
std::string help_for(std::string_view name) {
  const std::string_view bare = name.substr(name.starts_with('%') ? 1 : 0);
  const auto part = spec::find_register(bare, spec::RegisterNames::extended);
  if (part) return "the whole register is '%" + std::string(spec::register_name(part->reg)) + "'";
  return spec::register_help(bare, spec::RegisterNames::kernel);
}

Result<Action> register_in(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos)
    return action_error(0, "'set' needs a register and a value", "set %di=0, or set $retval=-1 at a return");
  const std::string_view name = text.substr(0, equals);
  const auto value = value_in(text.substr(equals + 1), equals + 1);
  if (!value) return value.error();
  if (name == "$retval") return Action{.value = *value, .is_of_return = true};
  const auto found =
      name.starts_with('%') ? spec::find_register(name.substr(1), spec::RegisterNames::kernel) : std::nullopt;
  if (!found) return action_error(0, "'" + std::string(name) + "' is no register", help_for(name));
  if (!can_be_set(found->reg))
    return action_error(0, "'" + std::string(name) + "' cannot be set", "the general registers but %sp can");
  return Action{.value = *value, .target = found->reg};
}

Result<Action> delay_in(std::string_view text, std::size_t column) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 3> kUnits = {
      {{"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto unit = std::ranges::find(kUnits, text.substr(digits), &std::pair<std::string_view, std::uint64_t>::first);
  std::uint64_t number = 0;
  const int err = spec::read_unsigned(text.substr(0, digits), 10, number);
  if (unit == kUnits.end() || (err != 0 && err != ERANGE) || (err == 0 && number == 0))
    return action_error(column, "'" + std::string(text) + "' is no time above 0",
                        "a whole number of us, ms or s: 10ms");
  if (err == ERANGE || number > shared::kMostDelay / unit->second)
    return action_error(column, "'" + std::string(text) + "' is too long", "a delay has 10s at most", ERANGE);
  return Action{.value = number * unit->second};
}

Result<Action> signal_in(std::string_view text, std::size_t column) {
  const std::string_view name = text.starts_with("SIG") ? text.substr(3) : text;
  std::vector<std::string_view> names;
  for (int number = 1; number < __SIGRTMIN; ++number) {
    const char* known = ::sigabbrev_np(number);
    if (known == nullptr) continue;
    if (name == known) return Action{.value = static_cast<std::uint64_t>(number)};
    names.emplace_back(known);
  }
  return action_error(column, "no signal is called '" + std::string(text) + "'",
                      did_you_mean(name, names, "STOP, KILL, TERM, USR1, ..."));
}

}  // namespace

std::optional<TriggerKind> action_kind(std::string_view word) {
  if (word == "set") return TriggerKind::set_register;
  for (const auto& [name, kind] : kActions)
    if (word.starts_with(name)) return kind;
  return std::nullopt;
}

Result<Action> parse_action(TriggerKind kind, std::string_view word) {
  if (kind == TriggerKind::set_register) return register_in(word);
  const std::size_t begin = word.find('=') + 1;
  const std::string_view text = word.substr(begin);
  if (kind == TriggerKind::delay) return delay_in(text, begin);
  if (kind == TriggerKind::call_back) return callback_in(text, begin);
  return kind == TriggerKind::send_signal ? signal_in(text, begin) : override_in(text, begin);
}

}  // namespace uprobe::program
