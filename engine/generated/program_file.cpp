// SPDX-License-Identifier: MIT
#include "engine/generated/program_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

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

// Whether reading the file has no effect, and what it holds has been written to it: not a file of the kernel's own, such as /proc/kmsg,
// which a process may mount in the other's place.
bool is_of_a_disk(const Fd& file) {
  struct statfs about {};
  if (::fstatfs(file.get(), &about) != 0) return false;
  static constexpr std::array<std::uint32_t, 9> kOfTheKernel = {
      PROC_SUPER_MAGIC,   SYSFS_MAGIC,         DEBUGFS_MAGIC, TRACEFS_MAGIC, SECURITYFS_MAGIC,
      CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, BPF_FS_MAGIC,  NSFS_MAGIC};
  return std::ranges::find(kOfTheKernel, static_cast<std::uint32_t>(about.f_type)) == kOfTheKernel.end();
}

// Whether the owner may say what the process has generated.
bool is_owner(pid_t pid, uid_t owner) {
  struct stat process {};
  return owner == 0 || (::stat(procfs::path(pid).c_str(), &process) == 0 && process.st_uid == owner);
}

}  // namespace

std::optional<RegularFile> open_of_program(pid_t pid, const std::string& path) {
  const Fd found = open_inside(pid, path);
  if (!found || !is_of_a_disk(found)) return std::nullopt;
  auto file = open_regular("/proc/self/fd/" + std::to_string(found.get()));
  if (!file || !is_owner(pid, file->about.st_uid)) return std::nullopt;
  return file.take();
}

}  // namespace uprobe::control
