// SPDX-License-Identifier: MIT
// Reading /proc: paths, links, names, and the fields of status files (proc(5)). Every answer is that of one moment: the process may
// have ended, and its number may have passed to another one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace uprobe::procfs {

// "/proc/PID", "/proc/PID/FILE", "/proc/PID/task/TID/FILE".
std::string path(pid_t pid);
std::string path(pid_t pid, std::string_view file);
std::string path(pid_t pid, pid_t tid, std::string_view file);

// Most files of a process are opened by the kernel only while the process is not in the middle of an execve, which its user can make last
// (exec_update_lock: fs/proc). Others may read another user's ones in this process's stead, and are not awaited for long; where they
// answer nothing, this process reads them itself. Set once, before there are other threads.
struct Others {
  std::optional<Result<std::string>> (*read)(pid_t pid, const std::string& path) = nullptr;
  std::optional<std::string> (*link)(pid_t pid, const std::string& path) = nullptr;
};
void read_by(const Others& others);

// The whole of a file of a process, or of one of its threads.
Result<std::string> read(pid_t pid, std::string_view file);
Result<std::string> read(pid_t pid, pid_t tid, std::string_view file);

// The target of a symbolic link; empty: it cannot be read.
std::string link(const std::string& path);
// "/proc/PID/exe" and the like.
std::string link(pid_t pid, std::string_view file);

// The name of a process or thread (comm); empty: there is no such process, or it has no name.
std::string name_of(pid_t pid);

// The same of the text of its `status` file. Empty also where that shows the name with other characters in place of some of its own.
std::string name_in(std::string_view status);

// "process 12 (zsh)", or "process 12" where it has no name.
std::string called(pid_t pid);

// The value of a line "NAME:\tVALUE" of a status file; nothing where there is no such line. It refers to `status`.
std::optional<std::string_view> field(std::string_view status, std::string_view name);
// The decimal number that the value begins with; 0 where there is no such line.
long number(std::string_view status, std::string_view name);

// The set of capabilities in such a line (CapEff, CapPrm), a bit for each; 0 where there is none.
std::uint64_t capabilities(std::string_view status, std::string_view name);

// The tracer of a process's first thread. 0: it has none; nothing: the process cannot be read, and may have one.
std::optional<pid_t> tracer_of(pid_t pid);

// The kinds of namespace ("mount", "PID", "user") in which a process is not together with this one. A kind that cannot be read of it
// does not count.
std::vector<std::string_view> foreign_namespaces(pid_t pid);

// The digit of kernel.yama.ptrace_scope; empty: there is no Yama.
std::string ptrace_scope();

}  // namespace uprobe::procfs
