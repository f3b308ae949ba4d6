// What `uprobe-run --control` and the tool that has the session say to each other: one request, one reply, over a stream socket
// of the owner's. Both sides are of one user, and yet neither believes a length that the other gives.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe {

enum class OrderKind : unsigned char { define, remove, enable, disable, list, stats, clear };

struct Order {
  OrderKind kind = OrderKind::list;
  std::string text;            // a definition; the name of events, empty: all
  std::string default_object;  // of a definition
  std::string filter = {};     // of its events; empty: none
};

struct Reply {
  std::string text;            // what the orders say, up to the one that fails
  std::optional<Error> error;  // of that one
  std::size_t failed = 0;      // which one it is
};

std::string encode(const std::vector<Order>& orders);
std::string encode(const Reply& reply);
// Nothing where the bytes make no sense.
std::optional<std::vector<Order>> decode_orders(std::string_view bytes);
std::optional<Reply> decode_reply(std::string_view bytes);

// All of it, then no more is written / until the other side writes no more. Code::system; Code::limit beyond 16 MiB.
Status send_all(int socket, std::string_view bytes);
Result<std::string> receive_all(int socket);

// Where the sessions of this user are: $XDG_RUNTIME_DIR/uprobe-run, else /tmp/uprobe-run-UID.
std::string live_folder();

// A descriptor of that folder, which belongs to this user alone. `make`: where it is not there. Code::not_found, Code::refused.
Result<Fd> open_live_folder(bool make);

// Connects to `name` in the folder. Whoever listens is a process of this user's.
Result<Fd> connect_live(const Fd& folder, const std::string& name);

// "/proc/self/fd/N/NAME": paths of sockets are short.
std::string live_path(const Fd& folder, const std::string& name);

// Sends the orders to a session: a tool's process id, or the name that it was given.
Result<Reply> ask_session(const std::string& session, const std::vector<Order>& orders);

}  // namespace uprobe
