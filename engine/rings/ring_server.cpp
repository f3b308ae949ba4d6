// SPDX-License-Identifier: MIT
#include "engine/rings/ring_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <utility>

#include "engine/base/signal_masked_thread.h"
#include "engine/ipc/peer.h"

namespace uprobe::rings {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;
using Readers = std::list<ForeignReader>;

constexpr int kPace = 100;                 // milliseconds between two looks for new parts and events
constexpr auto kEndPatience = 200ms;       // for readers that have not got everything
constexpr useconds_t kAcceptPause = 1000;  // a flood of connections takes a bounded part of a processor

// Where there are too many, the oldest one that has not shown its pass has to leave.
bool has_room(Readers& readers) {
  if (readers.size() < kMostReaders) return true;
  const auto silent = std::ranges::find_if_not(readers, &ForeignReader::is_admitted);
  if (silent == readers.end()) return false;
  readers.erase(silent);
  return true;
}

void admit(int listener, Readers& readers) {
  Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  ::usleep(kAcceptPause);
  if (!socket) return;
  const bool is_welcome = has_room(readers);
  readers.emplace_back(std::move(socket));
  if (!is_welcome) readers.back().refuse("as many readers as there can be are there");
}

// Waits for something to do, and takes what readers say. True: a reader connects.
bool await(int listener, int bell, Readers& readers) {
  std::vector<pollfd> waits{{.fd = listener, .events = POLLIN, .revents = 0},
                            {.fd = bell, .events = POLLIN, .revents = 0}};
  waits.reserve(2 + readers.size());
  for (const ForeignReader& reader : readers)
    waits.push_back({.fd = reader.socket(), .events = reader.wanted(), .revents = 0});
  ::poll(waits.data(), waits.size(), readers.empty() ? -1 : kPace);
  eventfd_t rung = 0;
  if (waits[1].revents != 0) static_cast<void>(::eventfd_read(bell, &rung));
  std::size_t at = 2;
  for (ForeignReader& reader : readers)
    if ((waits[at++].revents & ~POLLOUT) != 0) reader.take();
  return waits[0].revents != 0;
}

}  // namespace

void RingServer::loop(int listener, Shared& shared, const Exported& what) {
  Readers readers;
  std::optional<steady_clock::time_point> end;
  for (;;) {
    if (await(listener, shared.bell.get(), readers)) admit(listener, readers);
    if (!end && shared.is_ending) end = steady_clock::now() + kEndPatience;
    for (ForeignReader& reader : readers) {
      reader.look(what.area);
      if (end) reader.end();
      reader.send_all(what);
    }
    std::erase_if(readers, [](const ForeignReader& reader) { return reader.is_over(); });
    shared.has_waiting = std::ranges::any_of(readers, &ForeignReader::waits);
    if (end && (readers.empty() || steady_clock::now() >= *end)) return;
  }
}

Result<RingServer> RingServer::open(const std::string& path) {
  RETURN_IF_ERROR(make_own_pass());
  auto socket = make_path_socket(path, SOCK_SEQPACKET);
  if (!socket) return socket.error();
  RingServer server(socket.take());
  server.shared_->bell = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server.shared_->bell) return system_error("eventfd", errno);
  return server;
}

RingServer::~RingServer() {
  if (!thread_.joinable()) return;
  shared_->is_ending = true;
  ::eventfd_write(shared_->bell.get(), 1);
  thread_.join();
}

void RingServer::serve(const trace::Area& area, std::uint64_t tick_rate, EventSource events) {
  thread_ = start_signal_masked_thread(
      [listener = socket_.listener.get(), shared = shared_.get(), &area, tick_rate, events = std::move(events)] {
        loop(listener, *shared, {area, tick_rate, events});
      });
}

void RingServer::tell_turn() {
  if (shared_->has_waiting) ::eventfd_write(shared_->bell.get(), 1);
}

}  // namespace uprobe::rings
