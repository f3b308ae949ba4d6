// SPDX-License-Identifier: MIT
#include "engine/ipc/control_protocol.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>

#include "engine/ipc/message.h"
#include "engine/ipc/peer.h"
#include "engine/ipc/socket_folder.h"

namespace uprobe {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

// Changes with every change of the messages.
constexpr std::uint32_t kControlVersion = 0x55510002;

Error not_this_users(const std::string& session) {
  return Error{.code = Code::refused, .text = "another user's process listens there", .where = session};
}

// Looks in all folders. An unusable folder is an error only where no other folder has the session.
Result<Connection> find_session(const std::string& session) {
  Error why{.code = Code::not_found, .text = "no such session is running", .where = session};
  for (auto& folder : socket_folders_of(::geteuid())) {
    if (!folder && folder.error().code == Code::refused) why = folder.error();
    if (!folder) continue;
    auto socket = connect_in(*folder, session, SOCK_STREAM);
    if (!socket && socket.error().err == EAGAIN)
      return Error{.code = Code::refused,
                   .text = "the session's tool does not answer",
                   .where = session,
                   .help = "it is stopped, or has too many requests: try again later"};
    if (!socket && socket.error().code != Code::not_found) return socket.error();
    if (!socket) continue;
    auto peer = peer_of(socket->get());
    if (!peer) return peer.error();
    if (peer->uid != ::geteuid()) return not_this_users(session);
    RETURN_IF_ERROR(check_namespaces(*peer));
    return Connection{socket.take(), peer.take()};
  }
  return why;
}

Error silent(const Connection& connection) {
  const std::string number = std::to_string(connection.peer.pid);
  if (is_stopped(connection.peer.pid))
    return Error{.code = Code::refused,
                 .text = "the session's tool is stopped (process " + number + ")",
                 .help = "kill -CONT " + number + " continues it"};
  return Error{.code = Code::refused, .text = "the session's tool does not answer (process " + number + ")"};
}

// Waits for the event; false where the deadline has passed.
bool wait_for(const Connection& connection, short event, steady_clock::time_point begun) {
  constexpr std::chrono::milliseconds kPace = 100ms;
  constexpr auto kPatience = 180s;  // a pattern may define a thousand probes, on a machine that is busy
  constexpr auto kPatienceWithStopped = 1s;
  pollfd one{.fd = connection.socket.get(), .events = event, .revents = 0};
  while (::poll(&one, 1, static_cast<int>(kPace.count())) <= 0) {
    const auto waited = steady_clock::now() - begun;
    if (waited > kPatience || (waited > kPatienceWithStopped && is_stopped(connection.peer.pid))) return false;
  }
  return true;
}

Status send_all(const Connection& connection, std::string_view bytes) {
  for (const auto begun = steady_clock::now(); !bytes.empty();) {
    if (!wait_for(connection, POLLOUT, begun)) return silent(connection);
    const ssize_t sent = ::send(connection.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return system_error("write to the session's socket", errno);
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  ::shutdown(connection.socket.get(), SHUT_WR);
  return ok();
}

Result<std::string> receive_all(const Connection& connection) {
  std::string bytes;
  char part[4096];
  for (const auto begun = steady_clock::now();;) {
    if (!wait_for(connection, POLLIN, begun)) return silent(connection);
    const ssize_t got = ::recv(connection.socket.get(), part, sizeof part, 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET && !bytes.empty())) return bytes;
    if (got < 0 && errno != EINTR && errno != EAGAIN) return system_error("read from the session's socket", errno);
    if (got > 0) bytes.append(part, static_cast<std::size_t>(got));
    if (bytes.size() > kMostReplyBytes) return Error{.code = Code::limit, .text = "the session's reply is too long"};
  }
}

}  // namespace

std::string encode(const std::vector<Command>& commands) {
  std::string bytes;
  put(bytes, static_cast<std::uint32_t>(commands.size()));
  for (const Command& command : commands) {
    put(bytes, static_cast<std::uint32_t>(command.kind));
    put(bytes, command.text);
    put(bytes, command.default_object);
    put(bytes, command.filter);
  }
  return bytes;
}

std::optional<std::vector<Command>> decode_commands(std::string_view bytes) {
  Parser parser(bytes);
  std::vector<Command> commands;
  for (std::uint32_t left = parser.number(); left != 0 && parser.good(); --left) {
    const std::uint32_t kind = parser.number();
    if (kind > static_cast<std::uint32_t>(CommandKind::dump)) return std::nullopt;
    Command command{.kind = static_cast<CommandKind>(kind), .text = parser.text(), .default_object = {}};
    command.default_object = parser.text();
    command.filter = parser.text();
    commands.push_back(std::move(command));
  }
  if (!parser.is_done()) return std::nullopt;
  return commands;
}

std::string encode(const Request& request) {
  std::string bytes;
  put(bytes, kControlVersion);
  put(bytes, request.pass);
  return bytes + encode(request.commands);
}

std::optional<Request> decode_request(std::string_view bytes) {
  constexpr std::size_t kMostPass = 64;
  Parser parser(bytes);
  if (parser.number() != kControlVersion) return std::nullopt;
  Request request{.pass = std::string(parser.view().substr(0, kMostPass)), .commands = {}};
  if (!parser.good()) return std::nullopt;
  auto commands = decode_commands(parser.rest());
  if (!commands) return std::nullopt;
  request.commands = std::move(*commands);
  return request;
}

std::string encode(const Reply& reply) {
  std::string bytes;
  put(bytes, reply.text);
  put(bytes, reply.error ? 1 : 0);
  if (!reply.error) return bytes;
  put(bytes, static_cast<std::uint32_t>(reply.failed));
  put(bytes, *reply.error);
  return bytes;
}

std::optional<Reply> decode_reply(std::string_view bytes) {
  Parser parser(bytes);
  Reply reply{.text = parser.text(), .error = {}};
  if (parser.number() != 0) {
    reply.failed = parser.number();
    reply.error = take_error(parser);
  }
  if (!parser.is_done()) return std::nullopt;
  return reply;
}

Result<Reply> ask_session(const std::string& session, const std::vector<Command>& commands) {
  if (session.empty() || session[0] == '.' || session.find('/') != std::string::npos)
    return Error{.code = Code::usage, .text = "a session is a process id or a name", .where = session};
  const auto connection = find_session(session);
  if (!connection) return connection.error();
  // A tool with more rights than this process will say so. One that can be looked at shows its pass.
  const std::string pass = pass_of(connection->peer);
  if (pass.empty() && can_be_looked_at(connection->peer))
    return Error{.code = Code::refused, .text = "the process at the session's socket is no tool", .where = session};
  // A tool that refuses the request may answer without reading it, so a failed write is not the end.
  static_cast<void>(send_all(*connection, encode(Request{pass, commands})));
  const auto bytes = receive_all(*connection);
  if (!bytes) return bytes.error();
  if (bytes->empty())
    return Error{.code = Code::refused, .text = "the session ended before it answered", .where = session};
  auto reply = decode_reply(*bytes);
  if (!reply) return Error{.code = Code::damaged, .text = "the session's reply is malformed", .where = session};
  return std::move(*reply);
}

}  // namespace uprobe
