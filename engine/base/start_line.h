// SPDX-License-Identifier: MIT
// The line between the tool and a process that waits to become the program: a pair of sockets that keep messages whole. The
// tool says which file the process executes, or how it ends; a child of the tool answers with an errno if execve fails.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe {

struct StartOrder {
  std::string path;  // to be executed; empty: the process is to end
  int code = 0;      // with this exit code
};

// Both ends; nothing and an errno if the pair cannot be made. Closed by execve.
std::optional<std::array<Fd, 2>> make_start_line();

// For the tool. The process may have ended.
void send_order(int line, const StartOrder& order);
// For the process: waits. Nothing: the tool has ended.
std::optional<StartOrder> await_order(int line);

// The error of a failed execve, as Code::not_found or Code::not_executable.
Error exec_error(const std::string& path, int error);

// One number from either side to the other.
void send_number(int line, int number);
std::optional<int> await_number(int line);
// Does not wait.
std::optional<int> take_number(int line);

}  // namespace uprobe
