// SPDX-License-Identifier: MIT
#include "engine/ipc/peer_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "engine/ipc/peer.h"
#include "engine/ipc/peer_server.h"
#include "engine/ipc/socket_folder.h"

namespace uprobe {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kLook = 50ms;
constexpr auto kAnswerPatience = 30s;  // the owner tool may read debug information, and serve other clients first
constexpr auto kStopPatience = 1s;

void wait_for(int socket, short events, std::chrono::milliseconds limit) {
  pollfd one{.fd = socket, .events = events, .revents = 0};
  ::poll(&one, 1, static_cast<int>(limit.count()));
}

Error given_up_error() { return Error{.code = Code::killed, .text = "given up"}; }

Error gone() { return Error{.code = Code::refused, .text = "the session has ended", .retry = Retry::anew}; }

Error another_version() {
  return Error{.code = Code::damaged, .text = "the tool that traces it is another version of uprobe-run"};
}

// The deadline for an owner tool that says nothing.
class Wait {
 public:
  explicit Wait(pid_t owner) : owner_(owner) {}
  Status check() const {
    const auto waited = steady_clock::now() - begun_;
    const std::string number = std::to_string(owner_);
    if (waited > kStopPatience && is_stopped(owner_))
      return Error{.code = Code::refused,
                   .text = "uprobe-run, process " + number + ", traces it and is stopped",
                   .help = "kill -CONT " + number + " continues it"};
    if (waited <= kAnswerPatience) return ok();
    return Error{.code = Code::refused,
                 .text = "uprobe-run, process " + number + ", traces it and does not answer",
                 .help = "end it, or try again later"};
  }

 private:
  pid_t owner_;
  steady_clock::time_point begun_ = steady_clock::now();
};

Result<Connection> connect_in_folder(const SocketFolder& folder, pid_t owner, uid_t user) {
  auto socket = connect_in(folder, client_socket_of(owner), SOCK_STREAM);
  if (!socket) return socket.error();
  auto peer = peer_of(socket->get());
  if (!peer) return peer.error();
  if (peer->pid != owner || peer->uid != user)
    return Error{.code = Code::not_found, .text = "another process listens at its socket"};
  RETURN_IF_ERROR(check_namespaces(*peer));
  return Connection{socket.take(), peer.take()};
}

// Looks in the folders of the owner tool's user.
Result<Connection> connect_to(pid_t owner) {
  const auto user = user_of(owner);
  if (!user) return gone();
  Error why{.code = Code::not_found, .text = "takes no client tools"};
  for (auto& folder : socket_folders_of(*user)) {
    if (!folder) continue;
    auto found = connect_in_folder(*folder, owner, *user);
    if (found || found.error().code != Code::not_found) return found;
  }
  return why;
}

}  // namespace

Result<PeerClient> PeerClient::begin(pid_t owner, const Hello& hello, const std::vector<std::string>& probes,
                                     bool joins_others, const GivenUp& given_up) {
  RETURN_IF_ERROR(make_own_pass());
  auto found = connect_to(owner);
  if (!found) return found.error();
  PeerClient client(std::move(found->socket), owner, probes);
  RETURN_IF_ERROR(client.hear_greeting(joins_others, given_up));
  Hello ours = hello;
  ours.pass = pass_of(found->peer);
  RETURN_IF_ERROR(client.send(encode(ours), given_up));
  RETURN_IF_ERROR(client.hear_answer(given_up));
  return client;
}

Status PeerClient::send(std::string_view bytes, const GivenUp& given_up) {
  for (Wait wait(owner_); !bytes.empty();) {
    if (given_up()) return given_up_error();
    const ssize_t sent = send_some(socket_.get(), bytes);
    if (sent < 0) return gone();
    bytes.remove_prefix(static_cast<std::size_t>(sent));
    if (sent != 0) continue;
    RETURN_IF_ERROR(wait.check());
    wait_for(socket_.get(), POLLOUT, kLook);
  }
  return ok();
}

// The owner tool's next message; a refusal becomes an error.
Result<MessageCutter::Message> PeerClient::next(const GivenUp& given_up) {
  for (Wait wait(owner_);;) {
    const auto message = in_.next();
    if (in_.is_bad()) return another_version();
    if (message && message->word == Word::refused) {
      const auto refusal = decode_refusal(message->bytes);
      if (!refusal) return another_version();
      Error error = refusal->error;
      error.err = 0, error.retry = refusal->come_back ? Retry::anew : Retry::never;
      return error;
    }
    if (message) return *message;
    if (given_up()) return given_up_error();
    RETURN_IF_ERROR(wait.check());
    wait_for(socket_.get(), POLLIN, kLook);
    if (!receive_some(socket_.get(), in_)) return gone();
  }
}

Status PeerClient::hear_greeting(bool joins_others, const GivenUp& given_up) {
  const auto message = next(given_up);
  if (!message) return message.error();
  const auto pass = message->word == Word::greeting ? decode_greeting(message->bytes) : std::nullopt;
  if (!pass) return another_version();
  if (joins_others || is_own_pass(*pass)) return ok();
  return Error{.code = Code::refused,
               .text = "uprobe-run, process " + std::to_string(owner_) + ", traces it with fewer rights than this one",
               .help = "use --join to join it nevertheless"};
}

Status PeerClient::hear_answer(const GivenUp& given_up) {
  const auto message = next(given_up);
  if (!message) return message.error();
  if (message->word != Word::admitted) return another_version();
  if (decode_admitted(message->bytes) == probes_) return ok();
  return Error{.code = Code::refused,
               .text = "uprobe-run, process " + std::to_string(owner_) +
                       ", which traces it, reads these definitions differently, or finds other files by their names"};
}

bool PeerClient::take(const MessageCutter::Message& message, const std::function<void(const ClientRecord&)>& sink) {
  if (message.word == Word::record) {
    const auto record = decode_record(message.bytes);
    // Stacks belong to triggers, and a client tool has none.
    if (!record || record->index >= received_.size() || !record->record.stack.empty()) return false;
    ++received_[record->index];
    sink(*record);
    return true;
  }
  if (message.word == Word::summary) return (summary_ = decode_summary(message.bytes)).has_value();
  if (message.word == Word::ended) end_ = decode_end(message.bytes);
  return false;
}

bool PeerClient::receive(const std::function<void(const ClientRecord&)>& sink, std::chrono::milliseconds limit) {
  wait_for(socket_.get(), POLLIN, limit);
  const bool is_there = receive_some(socket_.get(), in_);
  while (const auto message = in_.next())
    if (!take(*message, sink)) return false;
  return is_there && !in_.is_bad();
}

// Records that the owner tool already holds for this client still come. If the socket is full, its later close says the same.
void PeerClient::leave() {
  if (std::exchange(has_left_, true)) return;
  static_cast<void>(send_some(socket_.get(), encode_leave()));
}

Summary PeerClient::summary() const {
  if (summary_) return *summary_;
  Summary summary;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    ProbeSummary probe;
    probe.name = probes_[i];
    probe.hits = probe.recorded = received_[i];
    summary.probes.push_back(std::move(probe));
  }
  summary.notes.push_back(
      "the tool that had the target ended before it could tell its counts; the records received are shown");
  return summary;
}

}  // namespace uprobe
