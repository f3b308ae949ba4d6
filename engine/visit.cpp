#include "engine/visit.h"

#include <poll.h>

#include <cerrno>

namespace uprobe {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 50ms;

void wait_for(int socket, short events, std::chrono::milliseconds limit) {
  pollfd one{.fd = socket, .events = events, .revents = 0};
  ::poll(&one, 1, static_cast<int>(limit.count()));
}

Error given_up_error() { return Error{.code = Code::killed, .text = "given up"}; }

Error gone() {
  return Error{
      .code = Code::refused, .text = "the session has ended", .where = {}, .column = -1, .help = {}, .err = EAGAIN};
}

}  // namespace

Result<Visit> Visit::begin(pid_t host, const Hello& hello, const std::vector<std::string>& probes,
                           const GivenUp& given_up) {
  auto socket = connect_to_host(host);
  if (!socket) return socket.error();
  Visit visit(socket.take(), host, probes);
  if (Status sent = visit.send(encode(hello), given_up); !sent) return sent.error();
  if (Status admitted = visit.hear_answer(given_up); !admitted) return admitted.error();
  return visit;
}

Status Visit::send(std::string_view bytes, const GivenUp& given_up) {
  while (!bytes.empty()) {
    if (given_up()) return given_up_error();
    const ssize_t sent = send_some(socket_.get(), bytes);
    if (sent < 0) return gone();
    bytes.remove_prefix(static_cast<std::size_t>(sent));
    if (sent == 0) wait_for(socket_.get(), POLLOUT, kLook);
  }
  return ok();
}

Status Visit::hear_answer(const GivenUp& given_up) {
  for (;;) {
    const auto message = in_.next();
    if (message && message->word == Word::admitted) {
      if (decode_admitted(message->bytes) == probes_) return ok();
      return Error{.code = Code::refused,
                   .text = "uprobe-run, process " + std::to_string(host_) +
                           ", which traces it, reads these definitions in another way, or other files by their names"};
    }
    if (message || in_.is_bad()) {
      const auto refusal = message && message->word == Word::refused ? decode_refusal(message->bytes) : std::nullopt;
      if (!refusal) return Error{.code = Code::damaged, .text = "what traces it is another version of uprobe-run"};
      Error error = refusal->error;
      error.err = refusal->come_back ? EAGAIN : 0;
      return error;
    }
    if (given_up()) return given_up_error();
    wait_for(socket_.get(), POLLIN, kLook);
    if (!receive_some(socket_.get(), in_)) return gone();
  }
}

bool Visit::take(const MessageCutter::Message& message, const std::function<void(const GuestRecord&)>& sink) {
  if (message.word == Word::record) {
    const auto record = decode_record(message.bytes);
    if (!record || record->index >= received_.size()) return false;
    ++received_[record->index];
    sink(*record);
    return true;
  }
  if (message.word == Word::summary) return (summary_ = decode_summary(message.bytes)).has_value();
  if (message.word == Word::ended) end_ = decode_end(message.bytes);
  return false;
}

bool Visit::receive(const std::function<void(const GuestRecord&)>& sink, std::chrono::milliseconds limit) {
  wait_for(socket_.get(), POLLIN, limit);
  const bool is_there = receive_some(socket_.get(), in_);
  while (const auto message = in_.next())
    if (!take(*message, sink)) return false;
  return is_there && !in_.is_bad();
}

// What the host has in its hands for us comes yet. Where the socket takes nothing now its end says the same.
void Visit::leave() {
  if (std::exchange(has_left_, true)) return;
  static_cast<void>(send_some(socket_.get(), encode_leave()));
}

Summary Visit::summary() const {
  if (summary_) return *summary_;
  Summary summary;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    ProbeSummary probe;
    probe.name = probes_[i];
    probe.hits = probe.recorded = received_[i];
    summary.probes.push_back(std::move(probe));
  }
  summary.notes.push_back("the tool that had the target has gone before it could tell what it had counted");
  return summary;
}

}  // namespace uprobe
