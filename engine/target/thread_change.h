// SPDX-License-Identifier: MIT
// What has become of a thread that this process traces.
#pragma once

#include <sys/types.h>

namespace uprobe::target {

// How it has stopped or ended, as waitpid tells it; 0: nothing (with WNOHANG in `how`), -1: errno. Takes the stop or the end; but the
// end of a program that this process has started is only looked at, and left to the thread that waits for it.
pid_t take_change(pid_t tid, int& status, int how);

}  // namespace uprobe::target
