// SPDX-License-Identifier: MIT
#include "engine/base/procfs.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <utility>

#include "engine/base/fd.h"

namespace uprobe::procfs {

std::string path(pid_t pid) { return "/proc/" + std::to_string(pid); }

std::string path(pid_t pid, std::string_view file) { return path(pid).append("/").append(file); }

std::string path(pid_t pid, pid_t tid, std::string_view file) {
  return path(pid, "task/").append(std::to_string(tid)).append("/").append(file);
}

namespace {

Others& others() {
  static Others the_others;
  return the_others;
}

// Those for which the kernel takes no lock of the process's.
bool never_waits(std::string_view file) {
  static constexpr std::array<std::string_view, 8> kNever = {"status",    "comm",   "cmdline", "children",
                                                             "schedstat", "cgroup", "limits",  "mountinfo"};
  return std::ranges::find(kNever, file) != kNever.end();
}

Result<std::string> read_at(pid_t pid, std::string_view file, const std::string& path) {
  if (others().read != nullptr && !never_waits(file))
    if (auto text = others().read(pid, path)) return std::move(*text);
  return read_file(path);
}

}  // namespace

void read_by(const Others& theirs) { others() = theirs; }

Result<std::string> read(pid_t pid, std::string_view file) { return read_at(pid, file, path(pid, file)); }

Result<std::string> read(pid_t pid, pid_t tid, std::string_view file) {
  return read_at(pid, file, path(pid, tid, file));
}

std::string link(pid_t pid, std::string_view file) {
  const std::string place = path(pid, file);
  if (others().link != nullptr)
    if (auto text = others().link(pid, place)) return std::move(*text);
  return link(place);
}

std::string link(const std::string& path) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
  return size <= 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(size));
}

std::string name_of(pid_t pid) {
  const auto name = read(pid, "comm");
  return name && !name->empty() ? name->substr(0, name->size() - 1) : std::string();
}

// The kernel writes a line's end and a backslash as two characters (fs/proc/array.c, proc_task_name).
std::string name_in(std::string_view status) {
  const auto name = field(status, "Name");
  return name && name->find('\\') == std::string_view::npos ? std::string(*name) : std::string();
}

std::string called(pid_t pid) {
  const std::string name = name_of(pid);
  return "process " + std::to_string(pid) + (name.empty() ? name : " (" + name + ")");
}

std::optional<std::string_view> field(std::string_view status, std::string_view name) {
  while (!status.empty()) {
    const std::string_view line = status.substr(0, status.find('\n'));
    if (line.size() >= name.size() + 2 && line.starts_with(name) && line.substr(name.size(), 2) == ":\t")
      return line.substr(name.size() + 2);
    status.remove_prefix(line.size() == status.size() ? line.size() : line.size() + 1);
  }
  return std::nullopt;
}

long number(std::string_view status, std::string_view name) {
  long value = 0;
  if (const auto text = field(status, name)) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

std::uint64_t capabilities(std::string_view status, std::string_view name) {
  return std::strtoull(std::string(field(status, name).value_or("")).c_str(), nullptr, 16);
}

std::optional<pid_t> tracer_of(pid_t pid) {
  const auto status = read(pid, "status");
  if (!status) return std::nullopt;
  return static_cast<pid_t>(number(*status, "TracerPid"));
}

std::vector<std::string_view> foreign_namespaces(pid_t pid) {
  static constexpr std::array<std::pair<const char*, std::string_view>, 3> kKinds = {
      {{"mnt", "mount"}, {"pid", "PID"}, {"user", "user"}}};
  std::vector<std::string_view> kinds;
  for (const auto& [file, kind] : kKinds) {
    const std::string theirs = link(path(pid, "ns/").append(file));
    if (!theirs.empty() && theirs != link(std::string("/proc/self/ns/") + file)) kinds.push_back(kind);
  }
  return kinds;
}

std::string ptrace_scope() {
  const auto scope = read_file("/proc/sys/kernel/yama/ptrace_scope");
  return scope ? scope->substr(0, 1) : std::string();
}

}  // namespace uprobe::procfs
