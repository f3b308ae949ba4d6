// SPDX-License-Identifier: MIT
// The course of a session, besides its records: which processes it has, and what it loses. Times are nanoseconds of
// CLOCK_MONOTONIC, process ids those of the tool's PID namespace; names are hostile input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace uprobe::format {

// A process has come (start), runs another program from now on (exec), or is gone (end).
struct ProcessEvent {
  enum class Kind : std::uint32_t { start = 1, exec = 2, end = 3 };

  Kind kind = Kind::start;
  std::uint32_t pid = 0;
  std::uint64_t ns = 0;
  std::uint32_t parent = 0;  // start: the process of the session that has made it; 0: not known
  std::string comm, exe;     // the last name of its task that is known; exec: the program's path, empty if not known
  std::optional<int> exit, signal;  // end: at most one of them, where the tool can know it
};

// How much an event has lost up to a moment.
struct LossSoFar {
  std::uint64_t ns = 0;
  std::string name;  // "GROUP/EVENT"
  std::uint64_t hits = 0, returns = 0;
};

}  // namespace uprobe::format
