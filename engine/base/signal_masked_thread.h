// SPDX-License-Identifier: MIT
// Threads that no signal to the process interrupts: these are the main thread's business.
#pragma once

#include <functional>
#include <initializer_list>
#include <thread>

namespace uprobe {

// All signals but `let_through` are held back on it. A thread that holds a program lets SIGCHLD through: a blocked one would wake
// the main thread at each stop of the program, an ignored one wakes nobody. May throw std::system_error: no thread can be had; the
// calling thread's mask is then as it was.
std::thread start_signal_masked_thread(std::function<void()> work, std::initializer_list<int> let_through = {});

}  // namespace uprobe
