#include "engine/ipc/peer_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "engine/base/exhaustion.h"
#include "engine/base/quiet_thread.h"

namespace uprobe {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::size_t kMostGuests = 32;  // threads
constexpr auto kPatience = 1000ms;       // with a guest that takes nothing, at the end
constexpr auto kLongestFarewell = 10s;   // with one that takes little
constexpr auto kHelloPatience = 5000ms;
constexpr useconds_t kMoment = 10'000;

// Waits for the events; the other descriptor wakes us too.
void wait_for(int socket, short events, int wake, std::chrono::milliseconds limit) {
  pollfd waits[] = {{.fd = socket, .events = events, .revents = 0}, {.fd = wake, .events = POLLIN, .revents = 0}};
  ::poll(waits, 2, static_cast<int>(limit.count()));
  eventfd_t count = 0;
  if (waits[1].revents != 0) ::eventfd_read(wake, &count);
}

// Names of files are the guest's. Each thread may have a working folder of its own. Where root's is closed to us there are no names
// but whole ones: in this folder of numbers nobody has a file.
Status go_to(const std::string& folder) {
  constexpr const char* kNobodys = "/proc/self/fdinfo";
  if (::unshare(CLONE_FS) == 0 && (::chdir(folder.c_str()) == 0 || ::chdir(kNobodys) == 0)) return ok();
  return system_error("go to the working folder " + folder, errno);
}

}  // namespace

Guest::Guest(Fd socket, Peer peer)
    : socket_(std::move(socket)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), peer_(std::move(peer)) {}

void Guest::flush() {
  if (!records.is_empty()) ::eventfd_write(wake_.get(), 1);
}

std::optional<GuestEnd> Guest::end() const {
  const std::lock_guard lock(lock_);
  return end_;
}

std::string guest_socket_of(pid_t host) { return ".guests-" + std::to_string(host); }

struct GuestDoor::State {
  std::optional<DoorFolder> folder;
  std::optional<DoorName> name;
  Fd listener, stop;
  std::mutex lock;
  std::list<std::shared_ptr<Guest>> guests;
  GuestCalls calls;
  std::thread thread;

  void let_in();
  void take(Fd socket);
  void leave();
  void sweep(bool all);
  void attend(const std::shared_ptr<Guest>& guest);
  // One guest, in its thread.
  std::optional<Hello> hear_hello(Guest& guest, MessageCutter& in);
  enum class Why { left, gone, ended };
  bool say(Guest& guest, std::string_view bytes);
  void refuse(Guest& guest, const Error& error, bool come_back = false);
  ssize_t push(Guest& guest);
  Why pass_on(Guest& guest, MessageCutter& in);
  void see_off(Guest& guest, GuestEnd end);
};

GuestDoor::GuestDoor() = default;
GuestDoor::GuestDoor(GuestDoor&&) noexcept = default;

Result<GuestDoor> GuestDoor::open() {
  if (Status made = make_own_pass(); !made) return made.error();
  auto folder = make_door_folder();
  if (!folder) return folder.error();
  GuestDoor door;
  door.state_ = std::make_unique<State>();
  State& s = *door.state_;
  s.folder = folder.take();
  const std::string name = guest_socket_of(::getpid());
  if (Status mine = claim_name(*s.folder, name); !mine) return mine.error();
  auto listener = listen_in(*s.folder, name);
  if (!listener) return listener.error();
  s.listener = listener.take();
  auto kept = DoorName::keep(*s.folder, name);
  if (!kept) return kept.error();
  s.name.emplace(kept.take());
  s.stop = Fd(::eventfd(0, EFD_CLOEXEC));
  unlock_folder(*s.folder);
  return door;
}

GuestDoor::~GuestDoor() {
  if (state_) end(GuestEnd::host);
}

void GuestDoor::serve(GuestCalls calls) {
  state_->calls = std::move(calls);
  state_->thread = start_quiet_thread([state = state_.get()] { state->let_in(); });
}

void GuestDoor::State::let_in() {
  for (;;) {
    pollfd waits[] = {{.fd = listener.get(), .events = POLLIN, .revents = 0},
                      {.fd = stop.get(), .events = POLLIN, .revents = 0}};
    ::poll(waits, 2, -1);
    if (waits[1].revents != 0) return;
    sweep(false);
    Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket)
      take(std::move(socket));
    else
      ::usleep(kMoment);  // no descriptor is free, perhaps
  }
}

// A stranger is told why, and no more.
void GuestDoor::State::take(Fd socket) {
  const auto refuse = [&](const Error& error, bool come_back) {
    static_cast<void>(send_some(socket.get(), encode(Refusal{.error = error, .come_back = come_back})));
  };
  auto peer = peer_of(socket.get());
  if (!peer) return refuse(peer.error(), false);
  const bool is_users = peer->uid == ::geteuid() || peer->uid == 0;
  if (!is_users) return refuse({.code = Code::refused, .text = "the session is another user's"}, false);
  if (Status near = check_namespaces(*peer); !near) return refuse(near.error(), false);
  const std::lock_guard hold(lock);
  if (guests.size() >= kMostGuests)
    return refuse({.code = Code::limit, .text = "is traced by too many of us already"}, true);
  guests.push_back(std::make_shared<Guest>(std::move(socket), peer.take()));
  const std::shared_ptr<Guest> guest = guests.back();
  const Status begun = survive_exhaustion([&] {
    guest->thread_ = start_quiet_thread([this, guest] { attend(guest); });
    return ok();
  });
  if (!begun) guests.pop_back();
}

// The threads that have ended, or all of them, are waited for.
void GuestDoor::State::sweep(bool all) {
  std::list<std::shared_ptr<Guest>> gone;
  {
    const std::lock_guard hold(lock);
    for (auto at = guests.begin(); at != guests.end();) {
      const auto next = std::next(at);
      if (all || (*at)->done_) gone.splice(gone.end(), guests, at);
      at = next;
    }
  }
  for (const std::shared_ptr<Guest>& guest : gone) guest->thread_.join();
}

void GuestDoor::close() {
  State& s = *state_;
  if (s.thread.joinable()) {
    ::eventfd_write(s.stop.get(), 1);
    s.thread.join();
  }
  s.listener.reset();
  s.leave();
}

void GuestDoor::State::leave() {
  if (!folder) return;
  lock_folder(*folder);
  name.reset();
  leave_folder(*folder);
  folder.reset();
}

void GuestDoor::end(GuestEnd end) {
  close();
  {
    const std::lock_guard hold(state_->lock);
    for (const std::shared_ptr<Guest>& guest : state_->guests) {
      const std::lock_guard lock(guest->lock_);
      if (!guest->end_) guest->end_ = end;
      ::eventfd_write(guest->wake_.get(), 1);
    }
  }
  state_->sweep(true);
}

std::optional<Hello> GuestDoor::State::hear_hello(Guest& guest, MessageCutter& in) {
  if (!say(guest, encode_greeting(pass_of(guest.peer_)))) return std::nullopt;
  for (const auto deadline = steady_clock::now() + kHelloPatience; steady_clock::now() < deadline && !in.is_bad();) {
    if (guest.end()) return std::nullopt;
    if (const auto message = in.next()) {
      auto hello = message->word == Word::hello ? decode_hello(message->bytes) : std::nullopt;
      if (!hello) {
        refuse(guest, {.code = Code::refused, .text = "is traced by another version of uprobe-run"});
      } else if (!is_own_pass(hello->pass)) {
        refuse(guest, {.code = Code::refused, .text = "is traced by a tool with more rights than this one"});
        return std::nullopt;
      }
      return hello;
    }
    wait_for(guest.socket_.get(), POLLIN, guest.wake_.get(), 100ms);
    if (!receive_some(guest.socket_.get(), in)) return std::nullopt;
  }
  return std::nullopt;
}

// False: it takes nothing any more, or too little.
bool GuestDoor::State::say(Guest& guest, std::string_view bytes) {
  const auto last = steady_clock::now() + kLongestFarewell;
  for (auto deadline = steady_clock::now() + kPatience; !bytes.empty();) {
    const ssize_t sent = send_some(guest.socket_.get(), bytes);
    if (sent < 0 || steady_clock::now() >= std::min(deadline, last)) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
    if (sent > 0) deadline = steady_clock::now() + kPatience;
    if (!bytes.empty()) wait_for(guest.socket_.get(), POLLOUT, guest.wake_.get(), 50ms);
  }
  return true;
}

void GuestDoor::State::refuse(Guest& guest, const Error& error, bool come_back) {
  say(guest, encode(Refusal{.error = error, .come_back = come_back}));
}

// Of what waits, what the socket takes at once: how many bytes; -1: nobody is there any more.
ssize_t GuestDoor::State::push(Guest& guest) {
  if (guest.sent_ == guest.sending_.size()) {
    guest.records.swap_out(guest.sending_);
    guest.sent_ = 0;
  }
  const ssize_t sent = send_some(guest.socket_.get(), std::string_view(guest.sending_).substr(guest.sent_));
  if (sent > 0) guest.sent_ += static_cast<std::size_t>(sent);
  return sent;
}

// All that it may say after its hello is that it leaves.
GuestDoor::State::Why GuestDoor::State::pass_on(Guest& guest, MessageCutter& in) {
  for (;;) {
    if (guest.end()) return Why::ended;
    const ssize_t sent = push(guest);
    if (sent < 0) return Why::gone;
    const bool is_full = guest.sent_ != guest.sending_.size();
    const int events = is_full ? POLLIN | POLLOUT : POLLIN;
    if (sent == 0) wait_for(guest.socket_.get(), static_cast<short>(events), guest.wake_.get(), 1000ms);
    if (!receive_some(guest.socket_.get(), in)) return Why::gone;
    const auto message = in.next();
    if (in.is_bad() || message) return message && message->word == Word::leave ? Why::left : Why::gone;
  }
}

void GuestDoor::State::see_off(Guest& guest, GuestEnd end) {
  const std::string_view rest = std::string_view(guest.sending_).substr(guest.sent_);
  if (!say(guest, rest)) return;
  std::string bytes;
  guest.records.swap_out(bytes);
  if (say(guest, bytes)) say(guest, encode(calls.summary_of(guest)) + encode(end));
}

void GuestDoor::State::attend(const std::shared_ptr<Guest>& guest) {
  MessageCutter in(kMostHelloBytes);
  if (const auto hello = hear_hello(*guest, in)) {
    auto admitted = Result<std::vector<std::string>>(Error{});
    const Status tried = survive_exhaustion([&]() -> Status {
      if (Status there = go_to(hello->folder); !there) return there;
      admitted = calls.admit(guest, *hello);
      return admitted ? ok() : Status(admitted.error());
    });
    if (!tried) {
      refuse(*guest, tried.error(), tried.error().err == EAGAIN);
    } else {
      const Why why = say(*guest, encode_admitted(*admitted)) ? pass_on(*guest, in) : Why::gone;
      const bool was_last = why != Why::ended && calls.dismiss(*guest);
      while (was_last && !guest->end()) wait_for(guest->wake_.get(), POLLIN, guest->wake_.get(), 100ms);
      if (why != Why::gone) see_off(*guest, why == Why::left ? GuestEnd::left : *guest->end());
      calls.forget(*guest);
    }
  }
  guest->socket_.reset();
  guest->done_ = true;
}

}  // namespace uprobe
