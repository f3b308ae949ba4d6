// SPDX-License-Identifier: MIT
// /proc's view of a program that uprobe-run has started, from outside of both.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace uprobe::bench {

// The program that `tool`, a uprobe-run, has started.
Result<pid_t> program_of(pid_t tool);

// Switches the session of `tool` off or on as the tool would, in the memory that it shares with its targets: points stay armed.
Status set_recording(pid_t tool, bool on);

// Anonymous memory without a name: the process block and the islands are such.
struct AnonymousBytes {
  std::uint64_t resident = 0, mapped = 0;
};
Result<AnonymousBytes> anonymous_bytes(pid_t pid);

// The text of a program in memory, and in its file.
class TextView {
 public:
  static Result<TextView> open(pid_t pid, const std::string& file);
  // The current bytes; those of before() where nothing has changed.
  Result<std::string> now() const;
  const std::string& in_file() const { return in_file_; }

 private:
  std::string mem_, in_file_;
  std::uint64_t address_ = 0;
};

}  // namespace uprobe::bench
