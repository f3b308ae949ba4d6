// SPDX-License-Identifier: MIT
#include "engine/base/roles.h"

#include <cstdlib>
#include <string>

#include "engine/base/fd.h"

namespace uprobe {
namespace {

std::string folder_of(pid_t pid) { return "/proc/" + std::to_string(pid); }

bool is_called(pid_t pid, const std::string& name) {
  const auto comm = read_file(folder_of(pid) + "/comm");
  return comm && *comm == name + "\n";
}

pid_t parent_of(pid_t pid) {
  constexpr char kLine[] = "\nPPid:\t";
  const auto status = read_file(folder_of(pid) + "/status");
  const std::size_t at = status ? status->find(kLine) : std::string::npos;
  return at == std::string::npos
             ? 0
             : static_cast<pid_t>(std::strtol(status->c_str() + at + sizeof kLine - 1, nullptr, 10));
}

}  // namespace

bool is_tracer(pid_t pid) { return is_called(pid, kTracerName); }

bool is_tool_process(pid_t pid) { return is_called(pid, kLauncherName) || is_tracer(pid); }

pid_t launcher_of(pid_t tracer) {
  const pid_t parent = parent_of(tracer);
  return parent != 0 && is_called(parent, kLauncherName) ? parent : 0;
}

}  // namespace uprobe
