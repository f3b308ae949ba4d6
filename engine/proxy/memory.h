// SPDX-License-Identifier: MIT
// The memory of another user's process, and files that it names or that are about it, by the calling thread's proxy (proxy.h).
//
// `user` is the one whose process it is (foreign.h). Errors are errno values; ETIMEDOUT: it did not answer in time; ENOTSUP: this kernel or
// container has no proxies that can do it (Linux 5.6: pidfd_getfd).
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/base/address.h"
#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/proxy/foreign.h"

namespace uprobe::proxy {

inline constexpr std::size_t kMostText =
    std::size_t{48} << 20;  // of a file of /proc: paths of 4,095 bytes make maps as long as a program likes

struct ReadPiece {
  Addr from;
  std::span<std::uint8_t> to;
};
// `memory` is a descriptor of /proc/PID/mem. 0, or an error; ESRCH: the memory is gone. Nothing is stored unless all was read.
int read_memory(Owner user, int memory, std::span<const ReadPiece> pieces);

struct MemoryPiece {
  Addr at;
  std::span<const std::uint8_t> bytes;  // must outlive the call
};
// One after the other. The proxy finishes it also where the tool is killed.
int write_memory(Owner user, int memory, std::span<const MemoryPiece> pieces);

// The whole of a file of /proc. Code::limit: it is longer than `limit` bytes.
Result<std::string> read_file(Owner user, const std::string& path, std::size_t limit);

// A file of a process in /proc (maps, environ, auxv, syscall, mem). The kernel opens these while the process is not in the middle of an execve
// (exec_update_lock: fs/exec.c, fs/proc/base.c), which its user can make last: by a descriptor of a FUSE server that execve has to close, or by
// thousands of them. A process of another user that this one may not look at anyhow is EACCES, and is not asked.
Result<std::string> read_of(pid_t pid, const std::string& path, std::size_t limit = kMostText);
Result<Fd> open_of(pid_t pid, const std::string& path, int flags);

// Whether two processes have one memory (kcmp, which takes the same lock of both); false also where one does not answer in time: it is past
// the point of execve where it lets the old memory go. Nothing: the kernel does not say.
std::optional<bool> share_memory(pid_t one, pid_t other);

// From now on what procfs reads of other users' processes is read by proxies (engine/base/procfs.h).
void stand_in_for_procfs();

// By stat; nothing: there is no such file, or it does not answer in time. Without a user: by this process.
std::optional<struct stat> status_of(std::optional<Owner> user, const std::string& path);

// Whether execve of a file changes rights: set-id bits or capabilities. False where there is no such file: execve will fail, or the script's
// interpreter decides. Nothing: it does not answer in time.
std::optional<bool> gives_privileges(std::optional<Owner> user, const std::string& path);

}  // namespace uprobe::proxy
