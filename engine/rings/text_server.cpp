// SPDX-License-Identifier: MIT
#include "engine/rings/text_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <optional>
#include <vector>

#include "engine/base/signal_masked_thread.h"
#include "engine/rings/http.h"

namespace uprobe {
namespace {

using Moment = std::chrono::steady_clock::time_point;
using namespace std::chrono_literals;
using Shared = TextServer::Shared;

constexpr auto kScraperPatience = 5s;      // for the request, and again for the client to read the answer
constexpr auto kLastPatience = 200ms;      // at the end
constexpr int kDeadlineLook = 100;         // milliseconds between two looks at the clock
constexpr useconds_t kAcceptPause = 1000;  // a flood of connections takes a bounded part of a processor

Moment now() { return std::chrono::steady_clock::now(); }

// One connection: its request, the wait for a new text, the answer.
class Scraper {
 public:
  explicit Scraper(Fd socket) : socket_(std::move(socket)), deadline_(now() + kScraperPatience) {}

  int socket() const { return socket_.get(); }
  short wanted() const { return static_cast<short>(is_writing_ ? POLLOUT : is_waiting() ? 0 : POLLIN); }
  bool is_over() const { return is_over_ || (!is_waiting() && now() >= deadline_); }
  bool has_asked() const { return is_writing_ || is_waiting(); }
  bool is_waiting() const { return answer_.has_value() && !is_writing_; }

  void go_on(short events, Shared& shared) {
    if (is_writing_) return write();
    if (!is_waiting()) return read(shared);
    if ((events & (POLLHUP | POLLERR)) != 0) is_over_ = true;
  }
  // A text that was made after the request, or the last one there is.
  void look(Shared& shared) {
    if (!is_waiting()) return;
    std::unique_lock lock(shared.lock);
    const bool is_new = shared.made > seen_;
    if (!is_new && now() < deadline_ && !shared.is_ending) return;
    const std::shared_ptr<const std::string> text = shared.text;
    lock.unlock();
    say(*text);
  }

 private:
  void read(Shared& shared) {
    char part[4096];
    const ssize_t got = ::recv(socket_.get(), part, sizeof part, MSG_DONTWAIT);
    if (got < 0) is_over_ = errno != EAGAIN && errno != EINTR;
    if (got == 0) is_over_ = true;
    if (got <= 0) return;
    bytes_.append(part, static_cast<std::size_t>(got));
    answer_ = answer_to(bytes_);
    if (!answer_) return;
    if (answer_->status != 200) return say({});
    deadline_ = now() + kTextPatience;
    const std::lock_guard lock(shared.lock);
    seen_ = shared.made;
    shared.is_wanted = true;
  }
  void say(const std::string& text) {
    bytes_ = http_bytes(*answer_, text);
    is_writing_ = true;
    deadline_ = now() + kScraperPatience;
    write();
  }
  void write() {
    const ssize_t sent =
        ::send(socket_.get(), bytes_.data() + sent_, bytes_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
      is_over_ = errno != EAGAIN && errno != EINTR;
    else
      sent_ += static_cast<std::size_t>(sent);
    if (sent_ == bytes_.size()) is_over_ = true;
  }

  Fd socket_;
  std::string bytes_;  // the request so far, then the answer
  std::size_t sent_ = 0;
  std::optional<HttpAnswer> answer_;
  std::uint64_t seen_ = 0;  // texts that there were when it asked
  bool is_writing_ = false, is_over_ = false;
  Moment deadline_;
};

void make_room(std::list<Scraper>& clients) {
  if (clients.size() < kMostScrapers) return;
  const auto silent = std::ranges::find_if_not(clients, &Scraper::has_asked);
  clients.erase(silent == clients.end() ? clients.begin() : silent);
}

void admit(int listener, std::list<Scraper>& clients) {
  Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  ::usleep(kAcceptPause);
  if (!socket) return;
  make_room(clients);
  clients.emplace_back(std::move(socket));
}

void take_turn(int listener, Shared& shared, std::list<Scraper>& clients) {
  std::vector<pollfd> waits{{.fd = listener, .events = POLLIN, .revents = 0},
                            {.fd = shared.bell.get(), .events = POLLIN, .revents = 0}};
  waits.reserve(2 + clients.size());
  for (const Scraper& client : clients)
    waits.push_back({.fd = client.socket(), .events = client.wanted(), .revents = 0});
  ::poll(waits.data(), waits.size(), clients.empty() && !shared.is_ending ? -1 : kDeadlineLook);
  eventfd_t rung = 0;
  if (waits[1].revents != 0) static_cast<void>(::eventfd_read(shared.bell.get(), &rung));
  std::size_t at = 2;
  for (Scraper& client : clients)
    if (const short events = waits[at++].revents; events != 0) client.go_on(events, shared);
  for (Scraper& client : clients) client.look(shared);
  std::erase_if(clients, [](const Scraper& client) { return client.is_over(); });
  if (waits[0].revents != 0) admit(listener, clients);
}

void loop(int listener, Shared& shared) {
  std::list<Scraper> clients;
  std::optional<Moment> end;
  while (!end || (!clients.empty() && now() < *end)) {
    take_turn(listener, shared, clients);
    if (!end && shared.is_ending) end = now() + kLastPatience;
  }
}

}  // namespace

Result<TextServer> TextServer::open(const std::string& path, std::string first) {
  auto socket = make_path_socket(path, SOCK_STREAM);
  if (!socket) return socket.error();
  TextServer server(socket.take());
  server.shared_->text = std::make_shared<const std::string>(std::move(first));
  server.shared_->bell = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server.shared_->bell) return system_error("eventfd", errno);
  return server;
}

TextServer::~TextServer() {
  if (!thread_.joinable()) return;
  shared_->is_ending = true;
  ::eventfd_write(shared_->bell.get(), 1);
  thread_.join();
}

void TextServer::serve() {
  thread_ = start_signal_masked_thread(
      [listener = socket_.listener.get(), shared = shared_.get()] { loop(listener, *shared); });
}

bool TextServer::is_wanted() {
  if (!shared_->is_wanted.load(std::memory_order_relaxed)) return false;
  const Moment moment = now();
  if (moment < next_) return false;
  next_ = moment + kTextPace;
  return shared_->is_wanted.exchange(false);
}

void TextServer::put(std::string text) {
  auto next = std::make_shared<const std::string>(std::move(text));
  {
    const std::lock_guard lock(shared_->lock);
    shared_->text.swap(next);
    ++shared_->made;
  }
  ::eventfd_write(shared_->bell.get(), 1);
}

}  // namespace uprobe
