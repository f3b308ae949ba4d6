// SPDX-License-Identifier: MIT
#include "engine/target/process_list.h"

#include <dirent.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/target/target.h"

namespace uprobe::target {

std::vector<ProcessEntry> list_processes() {
  std::vector<ProcessEntry> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  while (const dirent* entry = proc ? ::readdir(proc.get()) : nullptr) {
    pid_t pid = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, end, pid).ptr == end) found.push_back({pid, entry->d_ino});
  }
  return found;
}

EarlierProcesses EarlierProcesses::now() {
  EarlierProcesses earlier;
  for (const auto& [pid, entry] : list_processes()) earlier.entries_.emplace(pid, entry);
  return earlier;
}

bool EarlierProcesses::has(const ProcessEntry& process) const {
  const auto found = entries_.find(process.pid);
  return found != entries_.end() && found->second == process.entry;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t tid : threads_of(pid)) {
    const auto list = procfs::read(pid, tid, "children");
    if (!list) continue;
    const char *at = list->data(), *const end = at + list->size();
    for (pid_t child = 0; at < end; ++at) {
      at = std::from_chars(at, end, child).ptr;
      if (child > 0) children.push_back(std::exchange(child, 0));
    }
  }
  return children;
}

std::vector<pid_t> ids_of_thread(pid_t pid, pid_t tid) {
  const auto status = procfs::read(pid, tid, "status");
  return status ? namespace_ids(*status) : std::vector<pid_t>();
}

// Most often it has the same one here.
pid_t thread_called(pid_t pid, pid_t inner) {
  if (const std::vector<pid_t> ids = ids_of_thread(pid, inner); ids.size() == 1 && ids[0] == inner) return inner;
  for (const pid_t tid : threads_of(pid)) {
    const std::vector<pid_t> ids = ids_of_thread(pid, tid);
    if (!ids.empty() && ids.back() == inner) return tid;
  }
  return 0;
}

std::vector<pid_t> namespace_ids(std::string_view status) {
  constexpr std::string_view kLine = "\nNSpid:";
  std::vector<pid_t> ids;
  const std::size_t at = status.find(kLine);
  if (at == std::string_view::npos) return ids;
  status.remove_prefix(at + kLine.size());
  for (status = status.substr(0, status.find('\n')); !status.empty() && status.front() == '\t';) {
    pid_t id = 0;
    const auto [end, error] = std::from_chars(status.data() + 1, status.data() + status.size(), id);
    if (error != std::errc{}) break;
    ids.push_back(id);
    status.remove_prefix(static_cast<std::size_t>(end - status.data()));
  }
  return ids;
}

}  // namespace uprobe::target
