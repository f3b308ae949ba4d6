// SPDX-License-Identifier: MIT
#include "engine/ipc/control_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <list>
#include <utility>

#include "engine/base/signal_masked_thread.h"
#include "engine/ipc/peer.h"

namespace uprobe {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;
using Answer = std::function<Reply(const std::vector<Command>&)>;

constexpr auto kRequesterPatience = 5s;  // for the request, and again for the client to read the reply
constexpr std::size_t kMostRequesters = 16;

bool is_name(const std::string& name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !name.empty() && name.size() <= 64 && name[0] != '.' && std::all_of(name.begin(), name.end(), is_plain) &&
         name.find_first_not_of("0123456789") != std::string::npos;
}

Reply refusal(std::string text) {
  return Reply{.text = {}, .error = Error{.code = Code::refused, .text = std::move(text)}};
}

// One connection: its request, then its reply.
class Requester {
 public:
  Requester(Fd socket) : socket_(std::move(socket)), deadline_(steady_clock::now() + kRequesterPatience) {
    const auto peer = peer_of(socket_.get());
    const Status fit = peer ? check_namespaces(*peer) : Status(peer.error());
    if (peer && peer->uid != ::geteuid())
      say(refusal("the session is another user's"));
    else if (!fit)
      say(refusal(fit.error().text));
  }

  int socket() const { return socket_.get(); }
  short wanted() const { return static_cast<short>(is_answered_ ? POLLOUT : POLLIN); }
  bool is_over() const { return is_over_ || steady_clock::now() >= deadline_; }
  bool is_answered() const { return is_answered_; }

  void go_on(const Answer& answer) {
    if (is_answered_)
      write();
    else
      read(answer);
  }

 private:
  void say(const Reply& reply) {
    bytes_ = encode(reply);
    is_answered_ = true;
    deadline_ = steady_clock::now() + kRequesterPatience;
    write();
  }

  // The request ends where the client shuts down its side.
  void read(const Answer& answer) {
    char part[16384];
    const ssize_t got = ::recv(socket_.get(), part, sizeof part, MSG_DONTWAIT);
    if (got < 0) {
      is_over_ = errno != EAGAIN && errno != EINTR;
    } else if (got > 0) {
      bytes_.append(part, static_cast<std::size_t>(got));
      if (bytes_.size() > kMostRequestBytes) say(refusal("the request is longer than 4 MiB"));
    } else if (bytes_.empty()) {
      is_over_ = true;
    } else {
      follow(answer);
    }
  }

  void follow(const Answer& answer) {
    const auto request = decode_request(bytes_);
    if (!request) return say(refusal("the request is malformed, or comes from another version of uprobe-run"));
    if (!is_own_pass(request->pass)) return say(refusal("the session's tool has more rights than this process"));
    if (request->commands.empty()) return say(refusal("the request has no command"));
    say(answer(request->commands));
  }

  void write() {
    const ssize_t sent = ::send(socket_.get(), bytes_.data(), bytes_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
      is_over_ = errno != EAGAIN && errno != EINTR;
    else
      bytes_.erase(0, static_cast<std::size_t>(sent));
    if (bytes_.empty()) is_over_ = true;
  }

  Fd socket_;
  std::string bytes_;  // the request so far, then the rest of the reply
  bool is_answered_ = false, is_over_ = false;
  steady_clock::time_point deadline_;
};

// Where there are too many connections, closes the oldest one without a request: each could stay silent for seconds.
void make_room(std::list<Requester>& clients) {
  if (clients.size() < kMostRequesters) return;
  const auto silent =
      std::find_if(clients.begin(), clients.end(), [](const Requester& client) { return !client.is_answered(); });
  clients.erase(silent == clients.end() ? clients.begin() : silent);
}

void loop(int listener, int stop, const Answer& answer) {
  constexpr int kPace = 200;  // milliseconds
  std::list<Requester> clients;
  for (std::vector<pollfd> waits;;) {
    waits = {{.fd = listener, .events = POLLIN, .revents = 0}, {.fd = stop, .events = POLLIN, .revents = 0}};
    for (const Requester& client : clients)
      waits.push_back({.fd = client.socket(), .events = client.wanted(), .revents = 0});
    ::poll(waits.data(), waits.size(), clients.empty() ? -1 : kPace);
    if (waits[1].revents != 0) return;
    std::size_t at = 2;
    for (Requester& client : clients)
      if (waits[at++].revents != 0) client.go_on(answer);
    std::erase_if(clients, [](const Requester& client) { return client.is_over(); });
    if (waits[0].revents == 0) continue;
    Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      ::usleep(10'000);  // perhaps no descriptor is free
      continue;
    }
    make_room(clients);
    clients.emplace_back(std::move(socket));
  }
}

}  // namespace

Result<ControlServer> ControlServer::open(const std::string& name, int pid) {
  if (!name.empty() && !is_name(name))
    return Error{.code = Code::usage,
                 .text = "a session's name consists of letters, digits, '_', '-' and '.', and is not a number",
                 .where = name};
  RETURN_IF_ERROR(make_own_pass());
  auto folder = make_socket_folder();
  if (!folder) return folder.error();
  ControlServer server;
  server.folder_ = folder.take();
  server.stop_ = Fd(::eventfd(0, EFD_CLOEXEC));
  const std::string own = std::to_string(pid);
  sweep_folder(*server.folder_);
  RETURN_IF_ERROR(claim_name(*server.folder_, own));
  auto listener = listen_in(*server.folder_, own, SOCK_STREAM);
  if (!listener) return listener.error();
  server.listener_ = listener.take();
  const auto keep = [&](const std::string& made) -> Status {
    auto kept = SocketName::keep(*server.folder_, made);
    if (!kept) return kept.error();
    server.names_.push_back(kept.take());
    return ok();
  };
  RETURN_IF_ERROR(keep(own));
  if (!name.empty()) {
    RETURN_IF_ERROR(claim_name(*server.folder_, name));
    if (::symlinkat(own.c_str(), server.folder_->fd.get(), name.c_str()) != 0)
      return system_error("symlink " + name, errno);
    RETURN_IF_ERROR(keep(name));
  }
  unlock_folder(*server.folder_);
  return server;
}

ControlServer::~ControlServer() {
  if (thread_.joinable()) {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  if (!folder_ || !folder_->fd) return;
  lock_folder(*folder_);
  names_.clear();
  leave_folder(*folder_);
}

void ControlServer::serve(std::function<Reply(const std::vector<Command>&)> answer) {
  thread_ = start_signal_masked_thread(
      [listener = listener_.get(), stop = stop_.get(), answer = std::move(answer)] { loop(listener, stop, answer); });
}

}  // namespace uprobe
