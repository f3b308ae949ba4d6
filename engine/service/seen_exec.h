// SPDX-License-Identifier: MIT
// A process of the session that runs another program from now on, as the mail service has seen it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace uprobe::control {

struct SeenExec {
  pid_t pid = 0;
  std::uint64_t ns = 0;   // of CLOCK_MONOTONIC: after the old program's last hit, and before the new one's first
  std::string comm, exe;  // as /proc has them; the path may be empty
};

}  // namespace uprobe::control
