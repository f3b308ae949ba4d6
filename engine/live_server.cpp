#include "engine/live_server.h"

#include <dirent.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/base/quiet_thread.h"

namespace uprobe {
namespace {

constexpr timeval kPatience{.tv_sec = 5, .tv_usec = 0};  // with a client that neither reads nor writes

bool is_name(const std::string& name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !name.empty() && name.size() <= 64 && name[0] != '.' && std::all_of(name.begin(), name.end(), is_plain) &&
         name.find_first_not_of("0123456789") != std::string::npos;
}

// Whatever is called so goes, unless somebody listens there.
Status claim(const Fd& folder, const std::string& name) {
  const auto answered = connect_live(folder, name);
  if (answered || answered.error().code != Code::not_found)
    return Error{.code = Code::refused, .text = "a session of this name is running", .where = name};
  if (::unlinkat(folder.get(), name.c_str(), 0) == 0 || errno == ENOENT) return ok();
  return system_error("unlink " + name, errno);
}

// What tools that were killed have left.
void sweep(const Fd& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(live_path(folder, ".").c_str()), ::closedir);
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr)
    if (entry->d_name[0] != '.') static_cast<void>(claim(folder, entry->d_name));
}

// The mode of the socket is there from the beginning: the kernel takes it from the descriptor's.
Result<Fd> listen_at(const Fd& folder, const std::string& name) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = live_path(folder, name);
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size() + 1, sizeof address.sun_path - 1));
  if (!socket || ::fchmod(socket.get(), 0600) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), 16) != 0)
    return system_error("listen at " + live_folder() + "/" + name, errno);
  return socket;
}

// The folder, which nobody else changes now. Whoever leaves it empty takes it away: then another one is made.
Result<Fd> lock_folder() {
  for (;;) {
    auto folder = open_live_folder(true);
    if (!folder) {
      if (folder.error().code == Code::not_found) continue;  // gone between the two
      return folder;
    }
    struct stat status {};
    ::flock(folder->get(), LOCK_EX);
    if (::fstat(folder->get(), &status) == 0 && status.st_nlink != 0) return folder;
  }
}

// Of the user whose session it is; the folder should not have let anybody else come so far.
bool is_owner(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

void answer_one(int socket, const std::function<Reply(const std::vector<Order>&)>& answer) {
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  if (!is_owner(socket)) {
    const Error refusal{.code = Code::refused, .text = "the session is another user's"};
    static_cast<void>(send_all(socket, encode(Reply{.text = {}, .error = refusal})));
    return;
  }
  const auto bytes = receive_all(socket);
  const auto orders = bytes ? decode_orders(*bytes) : std::nullopt;
  if (orders && !orders->empty()) static_cast<void>(send_all(socket, encode(answer(*orders))));
}

}  // namespace

Result<LiveServer> LiveServer::open(const std::string& name, int pid) {
  if (!name.empty() && !is_name(name))
    return Error{.code = Code::usage,
                 .text = "a session's name has letters, digits, '_', '-' and '.', and is no number",
                 .where = name};
  auto folder = lock_folder();
  if (!folder) return folder.error();
  LiveServer server;
  server.folder_ = folder.take();
  server.stop_ = Fd(::eventfd(0, EFD_CLOEXEC));
  const std::string own = std::to_string(pid);
  sweep(server.folder_);
  if (Status mine = claim(server.folder_, own); !mine) return mine.error();
  auto listener = listen_at(server.folder_, own);
  if (!listener) return listener.error();
  server.listener_ = listener.take();
  server.names_.push_back(own);
  if (!name.empty()) {
    if (Status mine = claim(server.folder_, name); !mine) return mine.error();
    if (::symlinkat(own.c_str(), server.folder_.get(), name.c_str()) != 0)
      return system_error("symlink " + name, errno);
    server.names_.push_back(name);
  }
  ::flock(server.folder_.get(), LOCK_UN);
  return server;
}

LiveServer::~LiveServer() {
  if (thread_.joinable()) {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  if (!folder_) return;
  ::flock(folder_.get(), LOCK_EX);
  for (const std::string& name : names_) ::unlinkat(folder_.get(), name.c_str(), 0);
  ::rmdir(live_folder().c_str());  // if nobody else is there
}

void LiveServer::serve(std::function<Reply(const std::vector<Order>&)> answer) {
  thread_ = start_quiet_thread(
      [listener = listener_.get(), stop = stop_.get(), answer = std::move(answer)] { loop(listener, stop, answer); });
}

void LiveServer::loop(int listener, int stop, const std::function<Reply(const std::vector<Order>&)>& answer) {
  for (;;) {
    pollfd waits[] = {{.fd = listener, .events = POLLIN, .revents = 0}, {.fd = stop, .events = POLLIN, .revents = 0}};
    ::poll(waits, 2, -1);
    if (waits[1].revents != 0) return;
    const Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (socket) answer_one(socket.get(), answer);
  }
}

}  // namespace uprobe
