// One of our open files, opened once more in the target.
#pragma once

#include "engine/base/result.h"
#include "engine/target/target.h"

namespace uprobe::control {

// The target's descriptor, close-on-exec, for the caller to close there. By its name in our /proc entry; through a socket
// where the target cannot see or open that (another user, PID namespace or root, no /proc). `scratch`: 512 bytes of the
// target's memory.
Result<int> pass_file(target::Target& target, Addr scratch, int fd);

void close_in(target::Target& target, int fd);

}  // namespace uprobe::control
