// SPDX-License-Identifier: MIT
#include "engine/rings/foreign_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "engine/ipc/peer.h"
#include "engine/program/format_file.h"
#include "engine/rings/ring_abi.h"
#include "engine/trace/clock.h"

namespace uprobe::rings {
namespace {

using namespace std::chrono_literals;

constexpr auto kGreetingPatience = 5s;
constexpr std::size_t kPieceBytes = UPROBE_RING_MOST_MESSAGE - sizeof(uprobe_ring_event);

template <class Message>
std::string_view bytes_of(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

// The message, if it is one of that kind and size.
template <class Message>
std::optional<Message> read_as(std::string_view bytes, std::uint32_t kind) {
  Message message;
  if (bytes.size() != sizeof message) return std::nullopt;
  std::memcpy(&message, bytes.data(), sizeof message);
  if (message.head.kind != kind || message.head.bytes != sizeof message) return std::nullopt;
  return message;
}

// An open file of the reader's own: its flags and its position are no one else's, and it cannot be mapped for writing.
Fd for_reading(int file) { return Fd(::open(("/proc/self/fd/" + std::to_string(file)).c_str(), O_RDONLY | O_CLOEXEC)); }

std::uint32_t position_of(const trace::Area& area, std::size_t ring) {
  const trace::LiveArea& live = area.live(ring / area.ring_count());
  auto& commit = live.ring(static_cast<std::uint32_t>(ring % area.ring_count())).commit;
  return static_cast<std::uint32_t>(std::atomic_ref(commit).load(std::memory_order_relaxed) >> 32);
}

uprobe_ring_session session_of(const trace::Area& area, std::uint64_t tick_rate) {
  const trace::Area::Places places = area.places();
  const trace::ClockSample clock = trace::Clock::sample();
  return {.head = {.kind = UPROBE_RING_SESSION, .bytes = sizeof(uprobe_ring_session)},
          .version = UPROBE_RING_VERSION,
          .ring_count = area.ring_count(),
          .cpu_ring_count = places.cpu_ring_count,
          .record_most = record_most(area.ring_bytes(), places.payload_limit),
          .ring_bytes = area.ring_bytes(),
          .file_bytes = places.data - places.live + area.ring_bytes() * area.ring_count(),
          .counts_offset = places.counts - places.live,
          .rings_offset = places.rings - places.live,
          .data_offset = places.data - places.live,
          .tsc = clock.tsc,
          .ns = clock.ns,
          .tick_rate = tick_rate};
}

}  // namespace

ForeignReader::ForeignReader(Fd socket)
    : socket_(std::move(socket)), admission_ends_(std::chrono::steady_clock::now() + kGreetingPatience) {
  const auto peer = peer_of(socket_.get());
  const Status fit = peer ? check_namespaces(*peer) : Status(peer.error());
  if (peer && peer->uid != ::geteuid())
    refuse("the session is another user's");
  else if (!fit)
    refuse(fit.error().text);
}

short ForeignReader::wanted() const { return static_cast<short>(is_blocked_ ? POLLIN | POLLOUT : POLLIN); }

bool ForeignReader::is_over() const {
  return is_over_ || (!is_admitted_ && std::chrono::steady_clock::now() >= admission_ends_);
}

void ForeignReader::refuse(std::string_view why) {
  const uprobe_ring_message head{.kind = UPROBE_RING_REFUSED,
                                 .bytes = static_cast<std::uint32_t>(sizeof head + why.size())};
  char unread[sizeof(
      uprobe_ring_greeting)];  // with a message that is not read the reader gets an error before the reason
  static_cast<void>(::recv(socket_.get(), unread, sizeof unread, MSG_DONTWAIT));
  send(std::string(bytes_of(head)).append(why));
  close_soon();
}

// A longer message than any that a reader may send is cut, and so is none. Descriptors that come with it are dropped by the
// kernel.
void ForeignReader::take() {
  char bytes[sizeof(uprobe_ring_greeting) + 1];
  const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return close_soon();
  const std::string_view message(bytes, static_cast<std::size_t>(got));
  if (is_admitted_)
    ask(message);
  else
    admit(message);
}

void ForeignReader::admit(std::string_view message) {
  const auto greeting = read_as<uprobe_ring_greeting>(message, UPROBE_RING_GREETING);
  if (!greeting || greeting->magic != UPROBE_RING_MAGIC) return refuse("the greeting is malformed");
  if (greeting->version != UPROBE_RING_VERSION)
    return refuse("the rings have version " + std::to_string(UPROBE_RING_VERSION) + " of uprobe/ring.h");
  if (!is_own_pass({greeting->pass, sizeof greeting->pass}))
    return refuse("the session's tool has more rights than this process");
  is_admitted_ = true;
}

void ForeignReader::ask(std::string_view message) {
  const auto wish = read_as<uprobe_ring_wake_at>(message, UPROBE_RING_WAKE_AT);
  if (!wish || wake_at_ != 0 || is_filled_) return close_soon();
  wake_at_ = std::max(wish->fill, 1u);
}

// False: not now, or never.
bool ForeignReader::send(std::string_view message, int descriptor) {
  iovec part{.iov_base = const_cast<char*>(message.data()), .iov_len = message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr whole{};
  whole.msg_iov = &part, whole.msg_iovlen = 1;
  if (descriptor >= 0) {
    whole.msg_control = control, whole.msg_controllen = sizeof control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&whole);
    rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  if (::sendmsg(socket_.get(), &whole, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
  is_blocked_ = errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM;
  if (!is_blocked_) close_soon();
  return false;
}

bool ForeignReader::send_session(const Exported& what) {
  return has_session_ = send(bytes_of(session_of(what.area, what.tick_rate)));
}

bool ForeignReader::send_part(const trace::Area& area) {
  const uprobe_ring_part part{.head = {.kind = UPROBE_RING_PART, .bytes = sizeof part},
                              .number = static_cast<std::uint32_t>(parts_),
                              .reserved = 0};
  const Fd file = for_reading(area.live(parts_).fd());
  if (!file) return close_soon(), false;
  const bool sent = send(bytes_of(part), file.get());
  parts_ += sent ? 1 : 0;
  return sent;
}

bool ForeignReader::send_event(const EventSource& events) {
  if (text_.empty()) {
    const auto layout = events(events_);
    if (!layout) return false;
    text_ = program::format_file(*layout, events_, program::FormatReader::libtraceevent);
    fixed_bytes_ = layout->fixed_bytes, text_sent_ = 0;
  }
  const std::string_view piece = std::string_view(text_).substr(text_sent_, kPieceBytes);
  const uprobe_ring_event event{
      .head = {.kind = UPROBE_RING_EVENT, .bytes = static_cast<std::uint32_t>(sizeof event + piece.size())},
      .number = events_,
      .fixed_bytes = fixed_bytes_,
      .text_bytes = static_cast<std::uint32_t>(text_.size()),
      .offset = static_cast<std::uint32_t>(text_sent_)};
  if (!send(std::string(bytes_of(event)).append(piece))) return false;
  text_sent_ += piece.size();
  if (text_sent_ == text_.size()) text_.clear(), ++events_;
  return true;
}

bool ForeignReader::send_notice(std::uint32_t kind) {
  return send(bytes_of(uprobe_ring_message{.kind = kind, .bytes = sizeof(uprobe_ring_message)}));
}

bool ForeignReader::send_next(const Exported& what) {
  if (!has_session_) return send_session(what);
  if (parts_ < what.area.live_count()) return send_part(what.area);
  if (send_event(what.events)) return true;
  if (is_blocked_ || is_over_) return false;
  if (is_filled_) return is_filled_ = !send_notice(UPROBE_RING_FILLED), !is_filled_;
  if (is_ending_ && send_notice(UPROBE_RING_END)) close_soon();
  return false;
}

void ForeignReader::send_all(const Exported& what) {
  is_blocked_ = false;
  if (!is_admitted_) return;
  while (!is_over_ && send_next(what)) continue;
}

// A ring that the reader did not know when it was last woken began at 0.
void ForeignReader::look(const trace::Area& area) {
  if (wake_at_ == 0) return;
  const std::size_t rings = area.live_count() * area.ring_count();
  woken_at_.resize(rings);
  std::vector<std::uint32_t> now(rings);
  for (std::size_t i = 0; i < rings; ++i) now[i] = position_of(area, i);
  const auto has_filled = [&](std::uint32_t at, std::uint32_t before) {
    return std::uint64_t{at - before} * 8 >= wake_at_;
  };
  if (std::equal(now.begin(), now.end(), woken_at_.begin(), std::not_fn(has_filled))) return;
  woken_at_ = std::move(now);
  wake_at_ = 0, is_filled_ = true;
}

}  // namespace uprobe::rings
