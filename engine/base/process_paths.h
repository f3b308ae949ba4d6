// SPDX-License-Identifier: MIT
// The files of a running process by its own paths, which need not lead this process to the same files.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace uprobe {

// "/proc/PID/exe" and "/proc/PID/root/..." name the files of a running process; nothing: the path is an ordinary one.
std::optional<pid_t> process_of(std::string_view path);

// A path as the process of process_of(program) sees it: through /proc/PID/root if its root is not this process's and the file
// exists there. Else the path.
std::string as_seen_by(std::string_view program, const std::string& path);

// A path by which this process can open the program of another one; and whether that file has been replaced or removed since.
struct ProcessProgram {
  std::string path;
  bool is_replaced = false;
  std::string name;  // where it was
};
ProcessProgram program_of(pid_t pid);

// The file that a running process knows by this path; no path: its program.
std::string file_of_process(pid_t pid, const std::string& path);

}  // namespace uprobe
