// A thread that no signal to the process interrupts: they are the main thread's business. SIGCHLD alone is not held back: a
// blocked one would wake the main thread at each stop of a program that this one holds, an ignored one wakes nobody.
#pragma once

#include <functional>
#include <thread>

namespace uprobe {

std::thread start_quiet_thread(std::function<void()> work);

}  // namespace uprobe
