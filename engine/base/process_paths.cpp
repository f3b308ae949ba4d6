// SPDX-License-Identifier: MIT
#include "engine/base/process_paths.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <utility>

#include "engine/base/procfs.h"

namespace uprobe {
namespace {

constexpr std::string_view kProc = "/proc/", kDeleted = " (deleted)";
constexpr int kMostLinks = 40;  // as the kernel follows in one path

// Device and inode of a regular file.
std::optional<std::pair<dev_t, ino_t>> identity_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return std::pair(status.st_dev, status.st_ino);
}

// Whether a path means the same for both.
bool has_own_root(pid_t pid) {
  struct stat ours {
  }, theirs{};
  if (::stat("/", &ours) != 0 || ::stat(procfs::path(pid, "root/").c_str(), &theirs) != 0) return false;
  return ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino ||
         procfs::link("/proc/self/ns/mnt") != procfs::link(pid, "ns/mnt");
}

// A path below `root` without symbolic links, which the kernel would follow from this process's root.
std::string inside(const std::string& root, std::string rest) {
  std::string done;
  for (int links = 0; !rest.empty() && done.size() + rest.size() < PATH_MAX;) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string part = rest.substr(0, end);
    rest.erase(0, std::min(end + 1, rest.size()));
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      done.erase(std::min(done.rfind('/'), done.size()));
      continue;
    }
    const std::string link = procfs::link(root + done + "/" + part);
    if (link.empty()) {
      done += "/" + part;
      continue;
    }
    if (++links > kMostLinks) return {};
    if (link[0] == '/') done.clear();
    rest = link + "/" + rest;
  }
  return root + done;
}

}  // namespace

std::optional<pid_t> process_of(std::string_view path) {
  if (!path.starts_with(kProc)) return {};
  const std::string_view rest = path.substr(kProc.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
  const std::string_view file = rest.substr(static_cast<std::size_t>(end - rest.data()));
  if (error != std::errc() || pid <= 0 || (file != "/exe" && !file.starts_with("/root/"))) return {};
  return pid;
}

std::string as_seen_by(std::string_view program, const std::string& path) {
  const auto pid = process_of(program);
  if (!pid || !path.starts_with('/') || path.starts_with(kProc) || !has_own_root(*pid)) return path;
  const std::string seen = inside(procfs::path(*pid, "root"), path);
  return !seen.empty() && identity_of(seen) ? seen : path;
}

ProcessProgram program_of(pid_t pid) {
  ProcessProgram found{.path = procfs::path(pid, "exe"), .name = procfs::link(pid, "exe")};
  const auto running = identity_of(found.path);
  if (found.name.ends_with(kDeleted)) {
    found.name.resize(found.name.size() - kDeleted.size());
    found.is_replaced = true;
    return found;
  }
  for (const std::string& path : {found.name, inside(procfs::path(pid, "root"), found.name)})
    if (running && identity_of(path) == running) {
      found.path = path;
      break;
    }
  return found;
}

std::string file_of_process(pid_t pid, const std::string& path) {
  const std::string program = procfs::path(pid, "exe");
  return path.empty() ? program : as_seen_by(program, path);
}

}  // namespace uprobe
