// SPDX-License-Identifier: MIT
// Runs a program and reads what it prints, line by line. Its standard input and its errors are /dev/null. What it prints is hostile
// as far as its input is: lines are cut, and nothing of them is interpreted here.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe {

class ProgramOutput {
 public:
  static constexpr std::size_t kMostLine = 64 * 1024;

  // `words[0]` is looked up in PATH; Code::not_found if it is not there.
  static Result<ProgramOutput> start(const std::vector<std::string>& words);
  ProgramOutput(ProgramOutput&& other) noexcept;
  ProgramOutput& operator=(ProgramOutput&&) = delete;
  // Ends the program if it has more to say.
  ~ProgramOutput();

  // Without its newline; at the end nothing.
  std::optional<std::string> next_line();
  // After the last line: whether the program has ended with exit code 0.
  bool has_succeeded();

 private:
  ProgramOutput(pid_t pid, Fd pipe) : pid_(pid), pipe_(std::move(pipe)) {}
  bool fill();
  int wait();

  pid_t pid_;
  Fd pipe_;
  std::string buffer_;
  std::size_t at_ = 0;  // of the next line
};

}  // namespace uprobe
