// SPDX-License-Identifier: MIT
// The messages between `uprobe-run --control` and the tool that runs a session: one request, one reply, over a stream socket in
// the session user's folder (socket_folder.h). The request begins with the tool's pass (peer.h), which only a process that the
// kernel lets inspect the tool can know. Neither side trusts a length that the other gives, and neither waits without a
// deadline.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace uprobe {

enum class CommandKind : unsigned char {
  define,
  remove,
  enable,
  disable,
  list,
  stats,
  clear,
  reset,
  info,
  tiers,
  summary,
  // Of a process to its self-attach tracer alone:
  keep,  // hits go into a flight recording, in place of the process; `text`: "BYTES FILE"
  dump   // that recording goes to the file `text`
};

struct Command {
  CommandKind kind = CommandKind::list;
  std::string text;            // a definition; for other commands event names, empty: all events
  std::string default_object;  // for a definition
  std::string filter = {};     // for a definition's events; empty: none
};

struct Reply {
  std::string text;            // output of the commands, up to the one that fails; of `summary` see call_table.h
  std::optional<Error> error;  // why that one failed
  std::size_t failed = 0;      // its index
};

// The commands, and the proof that the sender may give them.
struct Request {
  std::string pass;
  std::vector<Command> commands;
};

std::string encode(const std::vector<Command>& commands);
std::string encode(const Request& request);
std::string encode(const Reply& reply);
// Nothing where the bytes are malformed or have another version.
std::optional<std::vector<Command>> decode_commands(std::string_view bytes);
std::optional<Request> decode_request(std::string_view bytes);
std::optional<Reply> decode_reply(std::string_view bytes);

inline constexpr std::size_t kMostRequestBytes = std::size_t{4} << 20, kMostReplyBytes = std::size_t{16} << 20;

// Sends the commands to a session of this user, named by the tool's process id or by the session's name. Code::refused where
// the tool does not answer in time, or is stopped.
Result<Reply> ask_session(const std::string& session, const std::vector<Command>& commands);

}  // namespace uprobe
