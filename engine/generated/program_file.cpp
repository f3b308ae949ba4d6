// SPDX-License-Identifier: MIT
#include "engine/generated/program_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"

namespace uprobe::control {
namespace {

// Without links, which would lead out of the process's file system or to another user's file.
Fd open_inside(pid_t pid, const std::string& path) {
  const Fd root(::open(procfs::path(pid, "root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return Fd(static_cast<int>(::syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof how)));
}

// Whether the owner may say what the process has generated.
bool is_owner(pid_t pid, uid_t owner) {
  struct stat process {};
  return owner == 0 || (::stat(procfs::path(pid).c_str(), &process) == 0 && process.st_uid == owner);
}

}  // namespace

std::optional<RegularFile> open_of_program(pid_t pid, const std::string& path) {
  const Fd found = open_inside(pid, path);
  if (!found) return std::nullopt;
  auto file = open_regular("/proc/self/fd/" + std::to_string(found.get()));
  if (!file || !is_owner(pid, file->about.st_uid)) return std::nullopt;
  return file.take();
}

}  // namespace uprobe::control
