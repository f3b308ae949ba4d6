// SPDX-License-Identifier: MIT
// Parses counts, times and sizes of options.
#include "cli/values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

#include "engine/program/thinning.h"
#include "engine/shared/session_area.h"

namespace uprobe::cli {

namespace {

constexpr double kLongestSeconds = 100.0 * 365.25 * 86400;

// from_chars alone would also take a sign, "inf" and "nan".
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_process_name(std::string_view text) {
  return !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) != 0 &&
         text.find_first_of(", /") == std::string_view::npos;
}

Error unusable(std::string_view text, const std::string& what, std::string help) {
  std::string said("'");
  said.append(text).append("' ").append(what);
  return Error{.code = Code::usage, .text = said, .help = std::move(help)};
}

std::optional<std::uint64_t> whole_number(std::string_view text) {
  if (text.empty() || !is_digit(text[0])) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (err != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Digits with at most one point among them.
std::optional<double> decimal(std::string_view text) {
  if (text.empty() || !is_digit(text.front()) || !is_digit(text.back())) return std::nullopt;
  double value = 0;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (err != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> seconds_in(std::string_view unit) {
  if (unit.empty() || unit == "s") return 1;
  if (unit == "us") return 1e-6;
  if (unit == "ms") return 1e-3;
  if (unit == "m") return 60;
  if (unit == "h") return 3600;
  return std::nullopt;
}

std::optional<unsigned> size_shift(char unit) {
  switch (unit) {
    case 'k':
    case 'K':
      return 10;
    case 'm':
    case 'M':
      return 20;
    case 'g':
    case 'G':
      return 30;
    default:
      return std::nullopt;
  }
}

std::string size_text(std::uint64_t bytes) {
  for (const auto& [shift, unit] : {std::pair{30, "G"}, {20, "M"}, {10, "K"}})
    if (bytes >> shift << shift == bytes) return std::to_string(bytes >> shift) + unit;
  return std::to_string(bytes);
}

// More than any limit where the number does not fit.
Result<std::uint64_t> size_in(std::string_view text, const std::string& limits) {
  const std::optional<unsigned> shift = text.empty() ? std::nullopt : size_shift(text.back());
  const std::optional<std::uint64_t> number = whole_number(shift ? text.substr(0, text.size() - 1) : text);
  if (!number) return unusable(text, "is not a size", "bytes, or a number followed by K, M or G, " + limits);
  const unsigned by = shift.value_or(0);
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  return *number > most >> by ? most : *number << by;
}

}  // namespace

std::string full_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path full = std::filesystem::absolute(path, error);
  return error ? path : full.string();
}

Result<std::uint64_t> parse_count(std::string_view text) {
  const std::optional<std::uint64_t> value = whole_number(text);
  if (!value || *value == 0) return unusable(text, "is not a number of events", "a whole number from 1 on");
  return *value;
}

Result<std::uint32_t> parse_share(std::string_view text) {
  const std::string_view number = text.starts_with("1/") ? text.substr(2) : text;
  const std::optional<std::uint64_t> value = whole_number(number);
  if (!value || *value == 0 || *value > std::numeric_limits<std::uint32_t>::max())
    return unusable(text, "is not a share of the calls", "1/N: one of N calls, as in 1/100");
  return static_cast<std::uint32_t>(*value);
}

Result<std::uint32_t> parse_rate(std::string_view text) {
  const std::string_view number = text.ends_with("/s") ? text.substr(0, text.size() - 2) : text;
  const std::optional<std::uint64_t> value = whole_number(number);
  if (!value || *value == 0 || *value > program::kMostPerSecond)
    return unusable(text, "is not a rate", "N/s: at most N records a second, as in 1000/s");
  return static_cast<std::uint32_t>(*value);
}

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  static const std::string help = "a number followed by ms, s, m or h: 5, 500ms, 1.5s, 2m, 1h";
  std::size_t digits = 0;
  while (digits < text.size() && (is_digit(text[digits]) || text[digits] == '.')) ++digits;
  const std::optional<double> value = decimal(text.substr(0, digits));
  const std::optional<double> unit = seconds_in(text.substr(digits));
  if (!value || !unit) return unusable(text, "is not a time", help);
  const double seconds = *value * *unit;
  if (seconds > kLongestSeconds) return unusable(text, "is too long a time", "at most 100 years");
  const auto result = std::chrono::nanoseconds(std::llround(seconds * 1e9));
  if (result.count() == 0) return unusable(text, "is not a time above 0", help);
  return result;
}

Result<std::uint64_t> parse_seconds(std::string_view text) {
  constexpr std::size_t kDigits = 9;
  constexpr std::uint64_t kSecond = 1'000'000'000, kMost = 100'000'000'000;
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string after(text.substr(std::min(point + 1, text.size())));
  const bool is_short = after.size() <= kDigits && (point == text.size() || !after.empty());
  after.resize(kDigits, '0');
  const auto seconds = whole_number(text.substr(0, point)), rest = whole_number(after);
  if (!is_short || !seconds || !rest || *seconds > kMost / 10)
    return unusable(text, "is not a time of the trace", "seconds, as in its lines: 12345.678901");
  return *seconds * kSecond + *rest;
}

Result<std::uint64_t> parse_ring_size(std::string_view text) {
  using shared::kMaxRingBytes;
  using shared::kMinRingBytes;
  const std::string limits = "from " + size_text(kMinRingBytes) + " to " + size_text(kMaxRingBytes) + " for each ring";
  const Result<std::uint64_t> size = size_in(text, limits);
  if (!size) return size.error();
  if (*size > kMaxRingBytes) return unusable(text, "is too large a buffer", limits);
  if (*size < kMinRingBytes) return unusable(text, "is too small a buffer", limits);
  return *size;
}

Result<std::uint64_t> parse_recording_size(std::string_view text) {
  constexpr std::uint64_t kLeast = 256 * 1024;
  const std::string limits = "from " + size_text(kLeast) + " on";
  Result<std::uint64_t> size = size_in(text, limits);
  if (size && *size < kLeast) return unusable(text, "is too small a recording", limits);
  return size;
}

Result<std::uint32_t> parse_file_count(std::string_view text) {
  constexpr std::uint64_t kMost = 1000;
  const std::optional<std::uint64_t> number = whole_number(text);
  if (!number || *number < 2 || *number > kMost)
    return unusable(text, "is not a number of files", "from 2 to " + std::to_string(kMost));
  return static_cast<std::uint32_t>(*number);
}

Result<std::uint32_t> parse_string_limit(std::string_view text) {
  const std::optional<std::uint64_t> number = whole_number(text);
  if (!number || *number == 0 || *number > shared::kMostString)
    return unusable(text, "is not a number of bytes", "from 1 to " + std::to_string(shared::kMostString));
  return static_cast<std::uint32_t>(*number);
}

Result<std::vector<int>> parse_pids(std::string_view text) {
  const std::string_view all = text;
  std::vector<int> pids;
  for (;;) {
    const std::size_t end = std::min(text.find_first_of(", "), text.size());
    const auto number = whole_number(text.substr(0, end));
    if (!number || *number == 0 || *number > std::numeric_limits<int>::max())
      return unusable(
          all, "is not a list of process ids",
          is_process_name(all) ? "processes of that name: --comm=" + std::string(all) : "e.g. -P 1234 or -P 1234,1235");
    pids.push_back(static_cast<int>(*number));
    if (end == text.size()) return pids;
    text.remove_prefix(end + 1);
  }
}

bool is_pid_list(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0 &&
         text.find_first_not_of("0123456789, ") == std::string_view::npos;
}

Result<Overflow> parse_overflow(std::string_view text) {
  constexpr std::chrono::nanoseconds kUsualTime = std::chrono::seconds(1), kMostTime = std::chrono::minutes(1);
  constexpr std::uint64_t kUsualSize = 64 << 20, kLeastSize = 4096, kMostSize = 4ULL << 30;
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view what = text.substr(0, colon), value = text.substr(std::min(colon + 1, text.size()));
  if (text == "drop") return Overflow{.is_given = true};
  if (text == "wait") return Overflow{.patience = kUsualTime, .is_given = true};
  if (text == "overwrite") return Overflow{.newest = kUsualSize, .is_given = true};
  if (what == "wait") {
    const auto time = parse_duration(value);
    if (!time) return time.error();
    if (*time > kMostTime) return unusable(value, "is too long a time for a hit to wait", "a minute at most");
    return Overflow{.patience = *time, .is_given = true};
  }
  if (what != "overwrite") return unusable(text, "is not one of drop, wait[:TIME], overwrite[:SIZE]", {});
  const std::string limits = "from " + size_text(kLeastSize) + " to " + size_text(kMostSize);
  const auto size = size_in(value, limits);
  if (!size) return size.error();
  if (*size < kLeastSize || *size > kMostSize) return unusable(value, "is no size for the newest lines", limits);
  return Overflow{.newest = *size, .is_given = true};
}

Result<plan::Tier> parse_tier(std::string_view text) {
  if (text == "auto") return plan::Tier::automatic;
  if (text == "jump") return plan::Tier::jump;
  if (text == "int3") return plan::Tier::breakpoint;
  return unusable(text, "is not one of auto, jump, int3", {});
}

Result<plan::ReturnMode> parse_return_mode(std::string_view text) {
  if (text == "auto") return plan::ReturnMode::automatic;
  if (text == "stub") return plan::ReturnMode::stub;
  if (text == "exits") return plan::ReturnMode::exits;
  return unusable(text, "is not one of auto, stub, exits", {});
}

}  // namespace uprobe::cli
