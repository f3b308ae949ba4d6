// SPDX-License-Identifier: MIT
#include "engine/ipc/path_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace uprobe {
namespace {

Error refused_path(const std::string& path, std::string text, std::string help = {}) {
  return Error{.code = Code::refused, .text = std::move(text), .where = path, .help = std::move(help)};
}

Error cannot_enter(const std::string& folder, int err) {
  if (err == ELOOP || err == ENOTDIR)
    return refused_path(folder, "is a link or no folder", "name the socket by a path without links");
  Error error = system_error("cannot enter it", err);
  error.where = folder;
  return error;
}

// One name at a time, so that no link is followed.
Result<SocketFolder> enter(const std::string& path) {
  SocketFolder folder{Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)), path};
  for (std::size_t at = 1; folder.fd && at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string name = path.substr(at, end - at);
    at = end + 1;
    if (name.empty()) continue;
    Fd next(::openat(folder.fd.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return cannot_enter(path.substr(0, end), errno);
    folder.fd = std::move(next);
  }
  if (!folder.fd) return system_error("open of /", errno);
  return folder;
}

// Whether only this user and root can make and remove names there.
Status check_folder(const SocketFolder& folder) {
  constexpr const char* kHelp = "the socket needs a folder that only you can write to, as in $XDG_RUNTIME_DIR";
  struct stat status {};
  if (::fstat(folder.fd.get(), &status) != 0) return system_error("stat of " + folder.path, errno);
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    return refused_path(folder.path, "belongs to another user", kHelp);
  if ((status.st_mode & 022) != 0) return refused_path(folder.path, "is a folder that others can write to", kHelp);
  return ok();
}

// The inode of a socket of this user's at which no process listens; 0: there is none.
ino_t abandoned_socket(const SocketFolder& folder, const std::string& name, int type) {
  struct stat status {};
  if (::fstatat(folder.fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  if (!S_ISSOCK(status.st_mode) || status.st_uid != ::geteuid()) return 0;
  const auto answered = connect_in(folder, name, type);
  return !answered && answered.error().err == ECONNREFUSED ? status.st_ino : 0;
}

// Removes the name that a killed tool has left. A tool that has just made its socket listens a moment later, so it is asked twice.
// The lock keeps two tools from taking the same name over, one of them from the other.
bool remove_abandoned(const SocketFolder& folder, const std::string& name, int type) {
  constexpr useconds_t kMoment = 50'000;
  SocketFolder locked{Fd(::openat(folder.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), folder.path};
  if (!locked.fd || !lock_folder(locked)) return false;
  const ino_t seen = abandoned_socket(locked, name, type);
  if (seen == 0) return false;
  ::usleep(kMoment);
  return abandoned_socket(locked, name, type) == seen && ::unlinkat(locked.fd.get(), name.c_str(), 0) == 0;
}

}  // namespace

Result<PathSocket> make_path_socket(const std::string& path, int type) {
  const std::size_t slash = path.rfind('/');
  const std::string name = path.substr(slash + 1);
  if (slash == std::string::npos || name.empty() || name == "." || name == "..")
    return Error{.code = Code::usage, .text = "is not the path of a socket", .where = path};
  auto folder = enter(path.substr(0, slash == 0 ? 1 : slash));
  if (!folder) return folder.error();
  RETURN_IF_ERROR(check_folder(*folder));
  auto listener = listen_in(*folder, name, type);
  if (!listener && listener.error().err == EADDRINUSE && remove_abandoned(*folder, name, type))
    listener = listen_in(*folder, name, type);
  if (!listener && listener.error().err == EADDRINUSE)
    return refused_path(path, "exists already", "remove it, or name another socket");
  if (!listener) return listener.error();
  auto kept = SocketName::keep(*folder, name);
  if (!kept) return kept.error();
  return PathSocket{listener.take(), kept.take()};
}

}  // namespace uprobe
