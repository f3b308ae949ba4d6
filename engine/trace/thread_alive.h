// SPDX-License-Identifier: MIT
// Whether a thread still exists.
#pragma once

#include <cstdint>

namespace uprobe::trace {

// False only if it is certain that no instruction of the thread will run any more: no such task, or a zombie. Sends
// nothing to the thread. The id counts in our own PID namespace.
bool thread_is_alive(std::uint32_t tid);

}  // namespace uprobe::trace
