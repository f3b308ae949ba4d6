// SPDX-License-Identifier: MIT
// Threads that no signal to the process interrupts: the main thread handles them.
#pragma once

#include <functional>
#include <initializer_list>
#include <thread>

namespace uprobe {

// Blocks all signals in the thread but `let_through`. A thread that holds a program lets SIGCHLD through: a blocked one would
// wake the main thread at each stop of the program, an ignored one wakes no thread. May throw std::system_error if no thread
// can be made; the calling thread's mask is then as it was.
std::thread start_signal_masked_thread(std::function<void()> work, std::initializer_list<int> let_through = {});

}  // namespace uprobe
