// SPDX-License-Identifier: MIT
#include "engine/base/roles.h"

#include <string>

#include "engine/base/procfs.h"

namespace uprobe {
namespace {

bool is_called(pid_t pid, const std::string& name) { return procfs::name_of(pid) == name; }

}  // namespace

bool is_tracer(pid_t pid) { return is_called(pid, kTracerName); }

bool is_proxy(pid_t pid) { return is_called(pid, kProxyName); }

bool is_tool_process(pid_t pid) { return is_called(pid, kLauncherName) || is_tracer(pid); }

pid_t launcher_of(pid_t tracer) {
  const auto status = procfs::read(tracer, "status");
  const auto parent = status ? static_cast<pid_t>(procfs::number(*status, "PPid")) : 0;
  return parent != 0 && is_called(parent, kLauncherName) ? parent : 0;
}

}  // namespace uprobe
