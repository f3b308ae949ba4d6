// SPDX-License-Identifier: MIT
#include "engine/ipc/socket_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace uprobe {
namespace {

// A further user namespace has its own user ids, and folders in /tmp may be visible in both namespaces.
std::string name_of_namespace() {
  constexpr ino_t kFirst = 0xeffffffd;  // include/linux/proc_ns.h, PROC_USER_INIT_INO
  struct stat space {};
  if (::stat("/proc/self/ns/user", &space) != 0 || space.st_ino == kFirst) return {};
  return "." + std::to_string(space.st_ino);
}

std::string temporary_folder_of(uid_t user) { return "/tmp/uprobe-run-" + std::to_string(user) + name_of_namespace(); }

// $XDG_RUNTIME_DIR, if this user owns it, so that no other user can have put anything there.
std::string runtime_folder() {
  const char* const named = std::getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  if (named == nullptr || named[0] != '/' || ::stat(named, &status) != 0) return {};
  const bool is_own = S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & 022) == 0;
  return is_own && ::access(named, W_OK | X_OK) == 0 ? std::string(named) + "/uprobe-run" : std::string();
}

Error unusable(const std::string& path, std::string why) {
  return Error{
      .code = Code::refused,
      .text = std::move(why),
      .where = path,
      .help = "sessions need a folder of their own at this path: remove what is there, or set XDG_RUNTIME_DIR"};
}

Result<SocketFolder> open_folder(const std::string& path, uid_t user) {
  SocketFolder folder{Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)), path};
  if (!folder.fd && errno == ENOENT)
    return Error{.code = Code::not_found, .text = "no session is running", .where = path};
  if (!folder.fd && (errno == ENOTDIR || errno == ELOOP)) return unusable(path, "is not a folder");
  struct stat status {};
  if (!folder.fd || ::fstat(folder.fd.get(), &status) != 0) {
    const int err = errno;
    struct stat named {};
    const bool is_foreign = ::lstat(path.c_str(), &named) == 0 && named.st_uid != user;
    return is_foreign ? unusable(path, "belongs to another user") : system_error("open " + path, err);
  }
  if (status.st_uid != user) return unusable(path, "belongs to another user");
  if ((status.st_mode & 077) != 0) return unusable(path, "is open to other users");
  return folder;
}

Result<sockaddr_un> address_of(const SocketFolder& folder, const std::string& name) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = socket_path(folder, name);
  if (path.size() >= sizeof address.sun_path)
    return Error{.code = Code::usage, .text = "the name is too long", .where = name};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

bool is_socket_or_link(const struct stat& status) { return S_ISSOCK(status.st_mode) || S_ISLNK(status.st_mode); }

}  // namespace

// Another tool that leaves may remove the folder before it is locked here; then a new one is made.
Result<SocketFolder> make_socket_folder() {
  const std::string runtime = runtime_folder();
  const std::string path = runtime.empty() ? temporary_folder_of(::geteuid()) : runtime;
  for (int tries = 0; tries < 100; ++tries) {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return system_error("mkdir " + path, errno);
    auto folder = open_folder(path, ::geteuid());
    if (!folder && folder.error().code == Code::not_found) continue;
    if (!folder) return folder;
    if (!lock_folder(*folder)) return unusable(path, "is locked by another process");
    struct stat status {};
    if (::fstat(folder->fd.get(), &status) == 0 && status.st_nlink != 0) return folder;
  }
  return unusable(path, "is removed again and again by other processes");
}

std::vector<Result<SocketFolder>> socket_folders_of(uid_t user) {
  std::vector<std::string> paths;
  if (user != ::geteuid()) paths.push_back("/run/user/" + std::to_string(user) + "/uprobe-run");
  if (const std::string runtime = runtime_folder(); user == ::geteuid() && !runtime.empty()) paths.push_back(runtime);
  paths.push_back(temporary_folder_of(user));
  std::vector<Result<SocketFolder>> folders;
  for (const std::string& path : paths) folders.push_back(open_folder(path, user));
  return folders;
}

std::string socket_path(const SocketFolder& folder, const std::string& name) {
  return "/proc/self/fd/" + std::to_string(folder.fd.get()) + "/" + name;
}

// The socket has its mode from the beginning, because the kernel takes it from the descriptor.
Result<Fd> listen_in(const SocketFolder& folder, const std::string& name, int type) {
  const auto address = address_of(folder, name);
  if (!address) return address.error();
  Fd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::fchmod(socket.get(), 0600) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::listen(socket.get(), 16) != 0)
    return system_error("listen at " + folder.path + "/" + name, errno);
  return socket;
}

Result<Fd> connect_in(const SocketFolder& folder, const std::string& name, int type) {
  const auto address = address_of(folder, name);
  if (!address) return address.error();
  Fd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error("socket", errno);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0) return socket;
  if (errno == ENOENT || errno == ECONNREFUSED)
    return Error{.code = Code::not_found, .text = "no such session is running", .where = name, .err = errno};
  return system_error("connect to the session", errno);
}

Status claim_name(const SocketFolder& folder, const std::string& name) {
  struct stat status {};
  if (::fstatat(folder.fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return ok();
    return system_error("stat of " + folder.path + "/" + name, errno);
  }
  if (!is_socket_or_link(status) || status.st_uid != ::geteuid())
    return Error{.code = Code::refused, .text = "is not a session's socket", .where = folder.path + "/" + name};
  const auto answered = connect_in(folder, name, SOCK_STREAM);
  if (answered || answered.error().code != Code::not_found)
    return Error{.code = Code::refused, .text = "a session of this name is running", .where = name, .err = EADDRINUSE};
  if (::unlinkat(folder.fd.get(), name.c_str(), 0) == 0 || errno == ENOENT) return ok();
  return system_error("unlink " + name, errno);
}

void sweep_folder(const SocketFolder& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(socket_path(folder, ".").c_str()), ::closedir);
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") static_cast<void>(claim_name(folder, name));
  }
}

Result<SocketName> SocketName::keep(const SocketFolder& folder, std::string name) {
  struct stat status {};
  SocketName kept;
  kept.folder_ = Fd(::fcntl(folder.fd.get(), F_DUPFD_CLOEXEC, 3));
  if (!kept.folder_ || ::fstatat(folder.fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return system_error("stat of " + folder.path + "/" + name, errno);
  kept.name_ = std::move(name);
  kept.inode_ = status.st_ino;
  return kept;
}

SocketName::SocketName(SocketName&& other) noexcept
    : folder_(std::move(other.folder_)), name_(std::exchange(other.name_, {})), inode_(other.inode_) {}

SocketName::~SocketName() {
  struct stat status {};
  if (name_.empty() || ::fstatat(folder_.get(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (status.st_ino == inode_ && status.st_uid == ::geteuid() && is_socket_or_link(status))
    ::unlinkat(folder_.get(), name_.c_str(), 0);
}

bool lock_folder(const SocketFolder& folder) {
  constexpr int kMostLooks = 200;
  constexpr useconds_t kMoment = 10'000;
  for (int looks = 0; ::flock(folder.fd.get(), LOCK_EX | LOCK_NB) != 0; ++looks) {
    if (looks == kMostLooks) return false;
    ::usleep(kMoment);
  }
  return true;
}

void unlock_folder(const SocketFolder& folder) { ::flock(folder.fd.get(), LOCK_UN); }

void leave_folder(const SocketFolder& folder) {
  struct stat meant {
  }, named{};
  if (::fstat(folder.fd.get(), &meant) != 0 || ::lstat(folder.path.c_str(), &named) != 0) return;
  if (meant.st_dev == named.st_dev && meant.st_ino == named.st_ino) ::rmdir(folder.path.c_str());
}

}  // namespace uprobe
