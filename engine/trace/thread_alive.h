// SPDX-License-Identifier: MIT
// Whether a thread still exists.
#pragma once

#include <cstdint>

namespace uprobe::trace {

// False only if it is certain that the thread will execute no further instruction: there is no such task, or it is a zombie.
// Sends nothing to the thread. The id is one of the tool's PID namespace.
bool thread_is_alive(std::uint32_t tid);

}  // namespace uprobe::trace
