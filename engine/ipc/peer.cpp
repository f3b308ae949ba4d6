// SPDX-License-Identifier: MIT
#include "engine/ipc/peer.h"

#include <dirent.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <sstream>

#include "engine/base/procfs.h"
#include "engine/base/text.h"
#include "engine/target/process_list.h"
#include "engine/target/process_stat.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace uprobe {
namespace {

constexpr std::string_view kPassPrefix = "uprobe-pass:";
constexpr std::string_view kLinkPrefix = "/memfd:uprobe-pass:";
constexpr std::size_t kPassBytes = 32;        // hexadecimal digits
constexpr std::size_t kMostLooked = 1 << 16;  // descriptors per process: a hostile process may have many

// The ids of a process, one per PID namespace, from the outermost one that this /proc shows to the innermost.
std::vector<pid_t> ids_of(const std::string& folder) {
  const auto status = read_file(folder + "/status", 1 << 16);
  return status ? target::namespace_ids(*status) : std::vector<pid_t>();
}

struct Pass {
  std::string text;
  Fd file;
};

Pass make_pass() {
  std::array<std::uint8_t, kPassBytes / 2> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) return {};
  std::string text = hex_digits(random);
  Fd file(::memfd_create((std::string(kPassPrefix) + text).c_str(), MFD_CLOEXEC));
  return file ? Pass{text, std::move(file)} : Pass{};
}

const Pass& pass() {
  static const Pass only = make_pass();
  return only;
}

}  // namespace

bool Peer::is_alive() const {
  pollfd end{.fd = handle.get(), .events = POLLIN, .revents = 0};
  return handle && ::poll(&end, 1, 0) == 0;
}

Result<Peer> peer_of(int socket) {
  ucred from{};
  socklen_t size = sizeof from;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &from, &size) != 0)
    return system_error("ask for the peer of a socket", errno);
  Peer peer{.pid = from.pid, .uid = from.uid, .handle = {}};
  if (peer.pid <= 0) return Error{.code = Code::refused, .text = "the peer is in another PID namespace"};
  int handle = -1;
  size = sizeof handle;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &handle, &size) != 0)
    handle = static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0));
  peer.handle = Fd(handle);
  if (!peer.is_alive()) return Error{.code = Code::refused, .text = "the peer has ended"};
  return peer;
}

Status check_namespaces(const Peer& peer) {
  const std::string own = "/proc/self", other = procfs::path(peer.pid);
  const std::vector<pid_t> ids = ids_of(other);
  // A process of this namespace has as many ids as the tool, and its last one is the id that the kernel reported.
  const bool is_near = !ids.empty() && ids.size() == ids_of(own).size() && ids.back() == peer.pid;
  if (!is_near) return Error{.code = Code::refused, .text = "the peer is in another PID namespace"};
  for (const std::string_view kind : procfs::foreign_namespaces(peer.pid))
    if (kind != "mount")
      return Error{.code = Code::refused, .text = "the peer is in another " + std::string(kind) + " namespace"};
  if (!peer.is_alive()) return Error{.code = Code::refused, .text = "the peer has ended"};
  return ok();
}

Status make_own_pass() {
  return pass().file ? ok()
                     : Status(Error{.code = Code::system, .text = "cannot create the memory file that holds the pass"});
}

bool is_own_pass(std::string_view text) { return text.size() == kPassBytes && text == pass().text; }

std::string pass_of(const Peer& peer) {
  const std::string folder = procfs::path(peer.pid) + "/fd/";
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  std::size_t looked = 0;
  while (const dirent* entry = entries && looked++ < kMostLooked ? ::readdir(entries.get()) : nullptr) {
    const std::string link = procfs::link(folder + entry->d_name);
    if (!link.starts_with(kLinkPrefix) || link.size() < kLinkPrefix.size() + kPassBytes) continue;
    const std::string found = link.substr(kLinkPrefix.size(), kPassBytes);
    return peer.is_alive() ? found : std::string();
  }
  return {};
}

// Without the rights the names of its descriptors can be listed, and none of them read. Its socket is one of them.
bool can_be_looked_at(const Peer& peer) {
  const std::string folder = procfs::path(peer.pid, "fd/");
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  bool is_seen = false;
  while (const dirent* entry = entries && !is_seen ? ::readdir(entries.get()) : nullptr)
    is_seen = entry->d_name[0] != '.' && !procfs::link(folder + entry->d_name).empty();
  return is_seen && peer.is_alive();
}

bool is_stopped(pid_t pid) {
  const auto stat = target::stat_of(pid);
  return stat && (stat->state == 'T' || stat->state == 't');
}

// Reads /etc/passwd alone: other sources of user names (nsswitch.conf) may wait for a network.
std::string user_text(uid_t uid) {
  const std::string number = std::to_string(uid);
  const auto known = read_file("/etc/passwd", 1 << 20);
  std::istringstream lines(known ? *known : std::string());
  for (std::string line; std::getline(lines, line);) {
    const std::size_t password = line.find(':'), user = line.find(':', password + 1);
    if (password == std::string::npos || user == std::string::npos) continue;
    if (line.compare(user + 1, number.size() + 1, number + ":") != 0) continue;
    return line.substr(0, password) + " (uid " + number + ")";
  }
  return "uid " + number;
}

std::optional<uid_t> user_of(pid_t pid) {
  struct stat status {};
  if (::stat(procfs::path(pid).c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

}  // namespace uprobe
