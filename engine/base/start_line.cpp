// SPDX-License-Identifier: MIT
#include "engine/base/start_line.h"

#include <limits.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace uprobe {
namespace {

// The code, then the path.
constexpr std::size_t kMostBytes = sizeof(int) + PATH_MAX;

void send_whole(int line, const std::string& bytes) {
  while (::send(line, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

// Empty: the other side has ended, or, with MSG_DONTWAIT, no message has come yet.
std::string receive_whole(int line, int flags) {
  std::string bytes(kMostBytes, '\0');
  ssize_t got = 0;
  // ECONNRESET: the other side has ended without reading; its earlier messages come next.
  while ((got = ::recv(line, bytes.data(), bytes.size(), flags)) < 0 && (errno == EINTR || errno == ECONNRESET)) {
  }
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

std::string bytes_of(int number) { return {reinterpret_cast<const char*>(&number), sizeof number}; }

std::optional<int> number_in(const std::string& bytes) {
  if (bytes.size() < sizeof(int)) return std::nullopt;
  int number = 0;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

}  // namespace

std::optional<std::array<Fd, 2>> make_start_line() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return std::nullopt;
  return std::array{Fd(ends[0]), Fd(ends[1])};
}

void send_order(int line, const StartOrder& order) { send_whole(line, bytes_of(order.code) + order.path); }

std::optional<StartOrder> await_order(int line) {
  const std::string bytes = receive_whole(line, 0);
  const auto code = number_in(bytes);
  if (!code) return std::nullopt;
  return StartOrder{.path = bytes.substr(sizeof(int)), .code = *code};
}

Error exec_error(const std::string& path, int error) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::not_found : Code::not_executable;
  return Error{.code = code, .text = std::strerror(error), .where = path, .err = error};
}

void send_number(int line, int number) { send_whole(line, bytes_of(number)); }

std::optional<int> await_number(int line) { return number_in(receive_whole(line, 0)); }

std::optional<int> take_number(int line) { return number_in(receive_whole(line, MSG_DONTWAIT)); }

}  // namespace uprobe
