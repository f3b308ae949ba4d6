// SPDX-License-Identifier: MIT
// Asks the kernel twice: getpgid reports "no such task" regardless of /proc's mount options (hidepid makes living tasks look
// missing there), and the state in /proc shows zombies.
#include "engine/trace/thread_alive.h"

#include <unistd.h>

#include <cerrno>
#include <string>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"

namespace uprobe::trace {

bool thread_is_alive(std::uint32_t tid) {
  const auto task = static_cast<pid_t>(tid);
  if (task <= 0) return false;
  if (::getpgid(task) < 0 && errno == ESRCH) return false;
  const Result<std::string> stat = read_file(procfs::path(tid, "stat"), 4096);
  if (!stat) return true;
  // "TID (NAME) STATE ...", where the name may contain anything.
  const std::size_t end = stat->rfind(')');
  if (end == std::string::npos || end + 2 >= stat->size()) return true;
  const char state = (*stat)[end + 2];
  return state != 'Z' && state != 'X';
}

}  // namespace uprobe::trace
