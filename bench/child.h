// SPDX-License-Identifier: MIT
// A program that the benchmark starts and talks to by lines over its standard input and output.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe::bench {

class Child {
 public:
  // Its standard error goes to the file `errors`. argv[0] is a path.
  static Result<Child> start(const std::vector<std::string>& argv, const std::string& errors);
  Child(Child&& other) noexcept = default;
  Child& operator=(Child&&) = delete;
  // Closes its input and waits: a target ends then.
  ~Child();

  Status send(const std::string& line);
  // One line of its output without the newline. Code::system when there is none.
  Result<std::string> receive();
  pid_t pid() const { return pid_.value; }
  // Closes its input, waits for its end. Fails unless it exits with 0.
  Status finish();

 private:
  Child(pid_t pid, Fd to, Fd from) : pid_(pid), to_(std::move(to)), from_(std::move(from)) {}

  struct Pid {
    explicit Pid(pid_t pid) : value(pid) {}
    Pid(Pid&& other) noexcept : value(std::exchange(other.value, 0)) {}
    pid_t value;  // 0: waited for, or moved from
  };
  Pid pid_;
  Fd to_, from_;
  std::string received_;
};

}  // namespace uprobe::bench
