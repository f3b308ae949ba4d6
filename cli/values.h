// SPDX-License-Identifier: MIT
// Parses the values of options: counts, times, sizes. A value that is not understood completely is refused.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/plan/return_mode.h"
#include "engine/plan/tier.h"

namespace uprobe::cli {

// 1 .. 2^64-1, decimal.
Result<std::uint64_t> parse_count(std::string_view text);

// "1/100", "100": one of so many calls, 1 to 2^32-1; one of one are all.
Result<std::uint32_t> parse_share(std::string_view text);

// "1000/s", "1000": so many in a second, 1 to program::kMostPerSecond.
Result<std::uint32_t> parse_rate(std::string_view text);

// "5" (seconds), "500ms", "1.5s", "2m", "1h", "250us"; more than 0, at most 100 years.
Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

// How many bytes of a string are shown.
Result<std::uint32_t> parse_string_limit(std::string_view text);

// "65536", "64K", "4M", "1G": a ring's size in bytes, kMinRingBytes..kMaxRingBytes.
Result<std::uint64_t> parse_ring_size(std::string_view text);

// The path from the root: the working folder may be another one when it is used.
std::string full_path(const std::string& path);

// What becomes of hits for which there is no room.
struct Overflow {
  std::chrono::nanoseconds patience{0};  // they wait for room in the rings; 0: they are lost
  std::uint64_t newest = 0;              // bytes of the newest lines that the trace keeps; 0: all lines are written
  bool is_given = false;                 // by the user
};

// --overflow: drop, wait[:TIME], overwrite[:SIZE].
Result<Overflow> parse_overflow(std::string_view text);
// As parse_ring_size(), for a file. And how many files of it there are.
Result<std::uint64_t> parse_recording_size(std::string_view text);
Result<std::uint32_t> parse_file_count(std::string_view text);

// "12345.678901": seconds with up to nine digits after the point, in nanoseconds.
Result<std::uint64_t> parse_seconds(std::string_view text);

// "12", "12,34": process ids.
Result<std::vector<int>> parse_pids(std::string_view text);

// Whether nothing but digits and commas stand there.
bool is_pid_list(std::string_view text);

// "auto", "jump" or "int3".
Result<plan::Tier> parse_tier(std::string_view text);

// "auto", "stub" or "exits".
Result<plan::ReturnMode> parse_return_mode(std::string_view text);

}  // namespace uprobe::cli
