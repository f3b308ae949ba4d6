// SPDX-License-Identifier: MIT
// The tool's end of a connection to a foreign reader: a program that reads the rings by itself (library/uprobe/ring.h).
//
// The reader is hostile until proved otherwise. It gets nothing before it has shown that it may inspect the tool; then it gets
// descriptors for reading. Nothing that it sends is more than a number that is compared, it can have one request at a time, and
// the tool never waits for it: what its socket has no room for is sent later, from a position that takes no memory.
//
// Not thread-safe: all of it belongs to the server's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fd.h"
#include "engine/program/layout.h"
#include "engine/trace/area.h"

namespace uprobe::rings {

// The layout of an event; nothing: there is no event of that number yet. Called from the server's thread.
using EventSource = std::function<std::optional<program::EventLayout>(std::uint32_t number)>;

// What readers get.
struct Exported {
  const trace::Area& area;
  std::uint64_t tick_rate;  // of its clock: nanoseconds of a tick, << 32
  const EventSource& events;
};

class ForeignReader {
 public:
  // Refuses a process of another user or in other namespaces at once.
  explicit ForeignReader(Fd socket);

  int socket() const { return socket_.get(); }
  short wanted() const;  // of poll()
  bool is_over() const;
  bool is_admitted() const { return is_admitted_; }
  bool waits() const { return wake_at_ != 0; }  // for a ring to fill up

  void refuse(std::string_view why);
  // Takes a message, if there is one.
  void take();
  // Sends what is there for it, as far as the socket has room.
  void send_all(const Exported& what);
  // Looks how far the rings have come, if the reader waits for that.
  void look(const trace::Area& area);
  // Tells it of the end, once it has got all the rest.
  void end() { is_ending_ = true; }

 private:
  void admit(std::string_view message);
  void ask(std::string_view message);
  bool send(std::string_view message, int descriptor = -1);
  bool send_session(const Exported& what);
  bool send_part(const trace::Area& area);
  bool send_event(const EventSource& events);
  bool send_notice(std::uint32_t kind);
  bool send_next(const Exported& what);
  void close_soon() { is_over_ = true; }

  Fd socket_;
  const std::chrono::steady_clock::time_point admission_ends_;
  bool is_admitted_ = false, is_blocked_ = false, is_ending_ = false, is_over_ = false;
  bool has_session_ = false;
  std::size_t parts_ = 0;     // that it has
  std::uint32_t events_ = 0;  // likewise
  std::string text_;          // of the event under way; empty: none
  std::uint32_t fixed_bytes_ = 0;
  std::size_t text_sent_ = 0;
  std::uint32_t wake_at_ = 0;  // 0: it does not wait
  bool is_filled_ = false;
  std::vector<std::uint32_t> woken_at_;  // positions of the rings when it was last woken
};

}  // namespace uprobe::rings
