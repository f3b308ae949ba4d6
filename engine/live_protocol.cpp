#include "engine/live_protocol.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "engine/message.h"

namespace uprobe {
namespace {

constexpr std::size_t kMostBytes = 16u << 20;

}  // namespace

std::string encode(const std::vector<Order>& orders) {
  std::string bytes;
  put(bytes, static_cast<std::uint32_t>(orders.size()));
  for (const Order& order : orders) {
    put(bytes, static_cast<std::uint32_t>(order.kind));
    put(bytes, order.text);
    put(bytes, order.default_object);
    put(bytes, order.filter);
  }
  return bytes;
}

std::optional<std::vector<Order>> decode_orders(std::string_view bytes) {
  Parser parser(bytes);
  std::vector<Order> orders;
  for (std::uint32_t left = parser.number(); left != 0 && parser.good(); --left) {
    const std::uint32_t kind = parser.number();
    if (kind > static_cast<std::uint32_t>(OrderKind::clear)) return std::nullopt;
    Order order{.kind = static_cast<OrderKind>(kind), .text = parser.text(), .default_object = {}};
    order.default_object = parser.text();
    order.filter = parser.text();
    orders.push_back(std::move(order));
  }
  if (!parser.is_done()) return std::nullopt;
  return orders;
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

Status send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return system_error("write to the session's socket", errno);
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  ::shutdown(socket, SHUT_WR);
  return ok();
}

Result<std::string> receive_all(int socket) {
  std::string bytes;
  char part[4096];
  for (;;) {
    const ssize_t got = ::recv(socket, part, sizeof part, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read from the session's socket", errno);
    if (got == 0) return bytes;
    bytes.append(part, static_cast<std::size_t>(got));
    if (bytes.size() > kMostBytes) return Error{.code = Code::limit, .text = "the message is too long"};
  }
}

std::string live_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/' && ::access(runtime, W_OK | X_OK) == 0)
    return std::string(runtime) + "/uprobe-run";
  return "/tmp/uprobe-run-" + std::to_string(::geteuid());
}

Result<Fd> open_live_folder(bool make) {
  const std::string path = live_folder();
  if (make && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return system_error("mkdir " + path, errno);
  Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder && errno == ENOENT) return Error{.code = Code::not_found, .text = "no session is running", .where = path};
  struct stat status {};
  if (!folder || ::fstat(folder.get(), &status) != 0) return system_error("open " + path, errno);
  if (status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    return Error{.code = Code::refused, .text = "is not this user's alone", .where = path};
  return folder;
}

std::string live_path(const Fd& folder, const std::string& name) {
  return "/proc/self/fd/" + std::to_string(folder.get()) + "/" + name;
}

Result<Fd> connect_live(const Fd& folder, const std::string& name) {
  // Not to wait where a tool is stopped and its queue full: that is EAGAIN.
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error("socket", errno);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = live_path(folder, name);
  if (path.size() >= sizeof address.sun_path)
    return Error{.code = Code::usage, .text = "the name is too long", .where = name};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED)
      return Error{.code = Code::not_found, .text = "no such session is running", .where = name, .err = errno};
    return system_error("connect to the session", errno);
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != ::geteuid())
    return Error{.code = Code::refused, .text = "somebody else's process listens there", .where = name};
  ::fcntl(socket.get(), F_SETFL, 0);
  return socket;
}

Result<Reply> ask_session(const std::string& session, const std::vector<Order>& orders) {
  if (session.empty() || session.find('/') != std::string::npos)
    return Error{.code = Code::usage, .text = "a session is a process id or a name", .where = session};
  const auto folder = open_live_folder(false);
  if (!folder) return folder.error();
  const auto socket = connect_live(*folder, session);
  if (!socket) return socket.error();
  static_cast<void>(send_all(socket->get(), encode(orders)));  // who refuses us does not read, but answers
  const auto bytes = receive_all(socket->get());
  if (!bytes || bytes->empty())
    return Error{.code = Code::refused, .text = "the session has ended meanwhile", .where = session};
  auto reply = decode_reply(*bytes);
  if (!reply) return Error{.code = Code::damaged, .text = "the session's answer makes no sense", .where = session};
  return std::move(*reply);
}

}  // namespace uprobe
