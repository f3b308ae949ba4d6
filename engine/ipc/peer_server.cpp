// SPDX-License-Identifier: MIT
#include "engine/ipc/peer_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "engine/base/exhaustion.h"
#include "engine/base/signal_masked_thread.h"

namespace uprobe {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::size_t kMostClients = 32;    // one thread each
constexpr auto kFarewellPatience = 1000ms;  // at the end, with a client that reads nothing
constexpr auto kLongestFarewell = 10s;      // at the end, with a client that reads slowly
constexpr auto kHelloPatience = 5000ms;
constexpr useconds_t kMoment = 10'000;

// Waits for the events; `wake` ends the wait too.
void wait_for(int socket, short events, int wake, std::chrono::milliseconds limit) {
  pollfd waits[] = {{.fd = socket, .events = events, .revents = 0}, {.fd = wake, .events = POLLIN, .revents = 0}};
  ::poll(waits, 2, static_cast<int>(limit.count()));
  eventfd_t count = 0;
  if (waits[1].revents != 0) ::eventfd_read(wake, &count);
}

// File names in a client's definitions are relative to its working folder. Each client's thread has a working folder of its
// own. Where this process may not enter the client's folder, the thread goes to a folder of numbers in which no relative name
// exists.
Status go_to(const std::string& folder) {
  constexpr const char* kNobodys = "/proc/self/fdinfo";
  if (::unshare(CLONE_FS) == 0 && (::chdir(folder.c_str()) == 0 || ::chdir(kNobodys) == 0)) return ok();
  return system_error("go to the working folder " + folder, errno);
}

}  // namespace

Client::Client(Fd socket, Peer peer)
    : socket_(std::move(socket)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), peer_(std::move(peer)) {}

void Client::flush() {
  if (!records.is_empty()) ::eventfd_write(wake_.get(), 1);
}

std::optional<ClientEnd> Client::end() const {
  const std::lock_guard lock(lock_);
  return end_;
}

std::string client_socket_of(pid_t owner) { return ".clients-" + std::to_string(owner); }

struct PeerServer::State {
  std::optional<SocketFolder> folder;
  std::optional<SocketName> name;
  Fd listener, stop;
  std::mutex lock;
  std::list<std::shared_ptr<Client>> clients;
  ClientCalls calls;
  std::thread thread;

  void let_in();
  void take(Fd socket);
  void leave();
  void sweep(bool all);
  void serve_client(const std::shared_ptr<Client>& client);
  // For one client, in its thread.
  std::optional<Hello> hear_hello(Client& client, MessageCutter& in);
  enum class Why { left, gone, ended };
  bool say(Client& client, std::string_view bytes);
  void refuse(Client& client, const Error& error, bool come_back = false);
  ssize_t push(Client& client);
  Why pass_on(Client& client, MessageCutter& in);
  void see_off(Client& client, ClientEnd end);
};

PeerServer::PeerServer() = default;
PeerServer::PeerServer(PeerServer&&) noexcept = default;

Result<PeerServer> PeerServer::open() {
  RETURN_IF_ERROR(make_own_pass());
  auto folder = make_socket_folder();
  if (!folder) return folder.error();
  PeerServer server;
  server.state_ = std::make_unique<State>();
  State& s = *server.state_;
  s.folder = folder.take();
  const std::string name = client_socket_of(::getpid());
  RETURN_IF_ERROR(claim_name(*s.folder, name));
  auto listener = listen_in(*s.folder, name, SOCK_STREAM);
  if (!listener) return listener.error();
  s.listener = listener.take();
  auto kept = SocketName::keep(*s.folder, name);
  if (!kept) return kept.error();
  s.name.emplace(kept.take());
  s.stop = Fd(::eventfd(0, EFD_CLOEXEC));
  unlock_folder(*s.folder);
  return server;
}

PeerServer::~PeerServer() {
  if (state_) end(ClientEnd::owner);
}

void PeerServer::serve(ClientCalls calls) {
  state_->calls = std::move(calls);
  state_->thread = start_signal_masked_thread([state = state_.get()] { state->let_in(); });
}

void PeerServer::State::let_in() {
  for (;;) {
    pollfd waits[] = {{.fd = listener.get(), .events = POLLIN, .revents = 0},
                      {.fd = stop.get(), .events = POLLIN, .revents = 0}};
    ::poll(waits, 2, -1);
    if (waits[1].revents != 0) return;
    sweep(false);
    Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket)
      take(std::move(socket));
    else
      ::usleep(kMoment);  // perhaps no descriptor is free
  }
}

// A process that may not join gets the reason, and nothing else.
void PeerServer::State::take(Fd socket) {
  const auto refuse = [&](const Error& error, bool come_back) {
    static_cast<void>(send_some(socket.get(), encode(Refusal{.error = error, .come_back = come_back})));
  };
  auto peer = peer_of(socket.get());
  if (!peer) return refuse(peer.error(), false);
  const bool is_users = peer->uid == ::geteuid() || peer->uid == 0;
  if (!is_users) return refuse({.code = Code::refused, .text = "the session is another user's"}, false);
  if (Status near = check_namespaces(*peer); !near) return refuse(near.error(), false);
  const std::lock_guard hold(lock);
  if (clients.size() >= kMostClients)
    return refuse({.code = Code::limit, .text = "already has " + std::to_string(kMostClients) + " client tools"}, true);
  clients.push_back(std::make_shared<Client>(std::move(socket), peer.take()));
  const std::shared_ptr<Client> client = clients.back();
  const Status begun = catch_resource_exhaustion([&] {
    client->thread_ = start_signal_masked_thread([this, client] { serve_client(client); });
    return ok();
  });
  if (!begun) clients.pop_back();
}

// Joins the threads that have ended, or all of them.
void PeerServer::State::sweep(bool all) {
  std::list<std::shared_ptr<Client>> gone;
  {
    const std::lock_guard hold(lock);
    for (auto at = clients.begin(); at != clients.end();) {
      const auto next = std::next(at);
      if (all || (*at)->done_) gone.splice(gone.end(), clients, at);
      at = next;
    }
  }
  for (const std::shared_ptr<Client>& client : gone) client->thread_.join();
}

void PeerServer::close() {
  State& s = *state_;
  if (s.thread.joinable()) {
    ::eventfd_write(s.stop.get(), 1);
    s.thread.join();
  }
  s.listener.reset();
  s.leave();
}

void PeerServer::State::leave() {
  if (!folder) return;
  lock_folder(*folder);
  name.reset();
  leave_folder(*folder);
  folder.reset();
}

void PeerServer::end(ClientEnd end) {
  close();
  {
    const std::lock_guard hold(state_->lock);
    for (const std::shared_ptr<Client>& client : state_->clients) {
      const std::lock_guard lock(client->lock_);
      if (!client->end_) client->end_ = end;
      ::eventfd_write(client->wake_.get(), 1);
    }
  }
  state_->sweep(true);
}

std::optional<Hello> PeerServer::State::hear_hello(Client& client, MessageCutter& in) {
  if (!say(client, encode_greeting(pass_of(client.peer_)))) return std::nullopt;
  for (const auto deadline = steady_clock::now() + kHelloPatience; steady_clock::now() < deadline && !in.is_bad();) {
    if (client.end()) return std::nullopt;
    if (const auto message = in.next()) {
      auto hello = message->word == Word::hello ? decode_hello(message->bytes) : std::nullopt;
      if (!hello) {
        refuse(client, {.code = Code::refused, .text = "is traced by another version of uprobe-run"});
      } else if (!is_own_pass(hello->pass)) {
        refuse(client, {.code = Code::refused, .text = "is traced by a tool with more rights than this one"});
        return std::nullopt;
      }
      return hello;
    }
    wait_for(client.socket_.get(), POLLIN, client.wake_.get(), 100ms);
    if (!receive_some(client.socket_.get(), in)) return std::nullopt;
  }
  return std::nullopt;
}

// False: the client reads nothing, or too slowly.
bool PeerServer::State::say(Client& client, std::string_view bytes) {
  const auto last = steady_clock::now() + kLongestFarewell;
  for (auto deadline = steady_clock::now() + kFarewellPatience; !bytes.empty();) {
    const ssize_t sent = send_some(client.socket_.get(), bytes);
    if (sent < 0 || steady_clock::now() >= std::min(deadline, last)) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
    if (sent > 0) deadline = steady_clock::now() + kFarewellPatience;
    if (!bytes.empty()) wait_for(client.socket_.get(), POLLOUT, client.wake_.get(), 50ms);
  }
  return true;
}

void PeerServer::State::refuse(Client& client, const Error& error, bool come_back) {
  say(client, encode(Refusal{.error = error, .come_back = come_back}));
}

// Sends as much of the queued records as the socket takes at once and returns the number of bytes; -1: the client is gone.
ssize_t PeerServer::State::push(Client& client) {
  if (client.sent_ == client.sending_.size()) {
    client.records.swap_out(client.sending_);
    client.sent_ = 0;
  }
  const ssize_t sent = send_some(client.socket_.get(), std::string_view(client.sending_).substr(client.sent_));
  if (sent > 0) client.sent_ += static_cast<std::size_t>(sent);
  return sent;
}

// The only message that a client may send after its hello is `leave`.
PeerServer::State::Why PeerServer::State::pass_on(Client& client, MessageCutter& in) {
  for (;;) {
    if (client.end()) return Why::ended;
    const ssize_t sent = push(client);
    if (sent < 0) return Why::gone;
    const bool is_full = client.sent_ != client.sending_.size();
    const int events = is_full ? POLLIN | POLLOUT : POLLIN;
    if (sent == 0) wait_for(client.socket_.get(), static_cast<short>(events), client.wake_.get(), 1000ms);
    if (!receive_some(client.socket_.get(), in)) return Why::gone;
    const auto message = in.next();
    if (in.is_bad() || message) return message && message->word == Word::leave ? Why::left : Why::gone;
  }
}

void PeerServer::State::see_off(Client& client, ClientEnd end) {
  const std::string_view rest = std::string_view(client.sending_).substr(client.sent_);
  if (!say(client, rest)) return;
  std::string bytes;
  client.records.swap_out(bytes);
  if (say(client, bytes)) say(client, encode(calls.summary_of(client)) + encode(end));
}

void PeerServer::State::serve_client(const std::shared_ptr<Client>& client) {
  MessageCutter in(kMostHelloBytes);
  if (const auto hello = hear_hello(*client, in)) {
    auto admitted = Result<std::vector<std::string>>(Error{});
    const Status tried = catch_resource_exhaustion([&]() -> Status {
      RETURN_IF_ERROR(go_to(hello->folder));
      admitted = calls.admit(client, *hello);
      return admitted ? ok() : Status(admitted.error());
    });
    if (!tried) {
      refuse(*client, tried.error(), tried.error().retry == Retry::anew);
    } else {
      const Why why = say(*client, encode_admitted(*admitted)) ? pass_on(*client, in) : Why::gone;
      const bool was_last = why != Why::ended && calls.dismiss(*client);
      while (was_last && !client->end()) wait_for(client->wake_.get(), POLLIN, client->wake_.get(), 100ms);
      if (why != Why::gone) see_off(*client, why == Why::left ? ClientEnd::left : *client->end());
      calls.forget(*client);
    }
  }
  client->socket_.reset();
  client->done_ = true;
}

}  // namespace uprobe
