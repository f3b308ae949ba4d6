// SPDX-License-Identifier: MIT
// What `uprobe-run --control` and the tool that has the session say to each other: one request, one reply, over a stream socket in
// the owner's folder (socket_folder.h). The request begins with the tool's pass (peer.h): only a process that the kernel lets look into
// the tool can say it. Neither side believes a length that the other gives, and neither waits without a deadline.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace uprobe {

enum class CommandKind : unsigned char { define, remove, enable, disable, list, stats, clear };

struct Command {
  CommandKind kind = CommandKind::list;
  std::string text;            // a definition; the name of events, empty: all
  std::string default_object;  // of a definition
  std::string filter = {};     // of its events; empty: none
};

struct Reply {
  std::string text;            // what the commands say, up to the one that fails
  std::optional<Error> error;  // of that one
  std::size_t failed = 0;      // which one it is
};

// What goes through the socket: commands, and by what right.
struct Request {
  std::string pass;
  std::vector<Command> commands;
};

std::string encode(const std::vector<Command>& commands);
std::string encode(const Request& request);
std::string encode(const Reply& reply);
// Nothing where the bytes make no sense, or are those of another version.
std::optional<std::vector<Command>> decode_commands(std::string_view bytes);
std::optional<Request> decode_request(std::string_view bytes);
std::optional<Reply> decode_reply(std::string_view bytes);

inline constexpr std::size_t kMostRequestBytes = std::size_t{4} << 20, kMostReplyBytes = std::size_t{16} << 20;

// Sends the commands to a session of this user: a tool's process id, or the name that it was given. Code::refused where the tool does
// not answer in time, or is stopped.
Result<Reply> ask_session(const std::string& session, const std::vector<Command>& commands);

}  // namespace uprobe
