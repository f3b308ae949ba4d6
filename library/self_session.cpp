// SPDX-License-Identifier: MIT
#include "library/self_session.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "library/values.h"

namespace libuprobe {
namespace {

using uprobe::Word;

// A process has at most one session with itself; a second self-attach tracer would find the first.
std::atomic<int> g_attached{0};  // process id

Error ended() { return Error{.text = "the session has ended"}; }

// Yama lets a process be traced by its ancestors and by one process that it names. Which one the program has named before
// cannot be read.
bool name_tracer(int tracer) {
  if (::access("/proc/sys/kernel/yama", F_OK) != 0) return false;
  return ::prctl(PR_SET_PTRACER, tracer, 0, 0, 0) == 0;
}

Error explained(Error error) {
  if (::prctl(PR_GET_DUMPABLE) == 1 || error.column >= 0) return error;  // or a definition is wrong
  const std::string other = error.help.empty() ? "" : "; " + error.help;
  error.help = "it is not dumpable (prctl(PR_SET_DUMPABLE)), so that only privileged processes may trace it" + other;
  return error;
}

}  // namespace

Result<std::unique_ptr<Tracer>> SelfSession::begin(const Options& options) {
  const int process = ::getpid();
  int holder = g_attached;  // this process, or a parent that had a session when it forked
  if (holder == process || !g_attached.compare_exchange_strong(holder, process))
    return Error{.text = "this process already has a session with itself"};
  auto callbacks = Callbacks::make(options.callbacks);
  if (!callbacks) return g_attached = 0, callbacks.error();
  auto thread = WorkerThread::start();
  if (!thread) return g_attached = 0, thread.error();
  auto session = std::make_unique<SelfSession>(std::move(*callbacks), std::move(*thread));
  Status started = Nothing{};
  const auto start = [&] {
    Callbacks::leave_out_thread();
    started = session->start(options);
  };
  if (!session->thread_->run(start)) return ended();
  if (!started) return started.error();
  return std::unique_ptr<Tracer>(std::move(session));
}

SelfSession::~SelfSession() {
  stop();
  callbacks_->end();
  g_attached = 0;
}

Status SelfSession::start(const Options& options) {
  const Status met = meet(options);
  Status begun = met ? await_admission() : met;
  if (begun) thread_->watch(socket_.get(), [this] { receive(); });
  if (!begun) let_go();
  return begun;
}

Status SelfSession::meet(const Options& options) {
  auto tracer = start_self_attach_tracer(options, thread_->id(), callbacks_->words());
  if (!tracer) return tracer.error();
  socket_ = out_of_the_way(std::move(tracer->socket));
  intermediate_ = tracer->intermediate;
  while (!is_met_ && !has_ended_) wait(std::nullopt);
  if (!is_met_) return Error{.text = "uprobe-run does not answer", .help = "it must have the library's version"};
  life_ = out_of_the_way(uprobe::Fd(static_cast<int>(::syscall(SYS_pidfd_open, tracer_, 0))));
  is_tracer_named_ = name_tracer(tracer_);
  uprobe::Hello hello{.processes = {static_cast<std::uint32_t>(process_)}, .folder = {}, .definitions = {}};
  for (const std::string& definition : options.definitions) hello.definitions.push_back({definition, {}});
  for (const std::string& definition : callbacks_->definitions()) hello.definitions.push_back({definition, {}});
  send(encode(hello));
  return Nothing{};
}

Status SelfSession::await_admission() {
  while (!is_admitted_ && !refusal_ && !has_ended_) wait(std::nullopt);
  if (refusal_) return explained(*refusal_);
  return is_admitted_ ? Status(Nothing{}) : ended();
}

bool SelfSession::wait(std::optional<Clock::time_point> until) {
  using std::chrono::milliseconds;
  constexpr milliseconds kLongest{60'000}, kNone{0};
  const auto left = until ? std::chrono::ceil<milliseconds>(*until - Clock::now()) : kLongest;
  if (left < kNone) return false;
  pollfd all[] = {{.fd = socket_.get(), .events = POLLIN, .revents = 0},
                  {.fd = life_.get(), .events = POLLIN, .revents = 0}};
  const int ready = ::poll(all, std::size(all), static_cast<int>(std::min(left, kLongest).count()));
  if (ready <= 0) return !until || Clock::now() < *until;
  receive();
  return true;
}

// Receives a part of what is there, so that a caller that waits for an answer checks in between. Messages that the tracer sent
// before it died are read before its end is noticed.
void SelfSession::receive() {
  pollfd life{.fd = life_.get(), .events = POLLIN, .revents = 0},
      more{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  const bool is_dead = ::poll(&life, 1, 0) == 1;
  const bool has_more = ::poll(&more, 1, 0) == 1;
  if (has_more && !uprobe::receive_some(socket_.get(), in_)) has_ended_ = true;
  while (const auto message = in_.next()) handle(*message);
  if (in_.is_bad() || (is_dead && !has_more)) has_ended_ = true;
  if (has_ended_) thread_->watch(-1, {});
}

void SelfSession::handle(const uprobe::MessageCutter::Message& message) {
  if (message.word == Word::record) {
    const auto record = uprobe::decode_record(message.bytes);
    const auto layout = record ? layouts_.find(record->index) : layouts_.end();
    if (wants_events_ && layout != layouts_.end())
      events_.push_back(event_of(record->record, layout->second, record->task));
  } else if (message.word == Word::layout) {
    auto layout = uprobe::decode_layout(message.bytes);
    if (layout) layouts_.insert_or_assign(layout->index, std::move(layout->layout));
  } else if (message.word == Word::reply) {
    reply_ = uprobe::decode_reply(message.bytes);
  } else if (message.word == Word::summary) {
    const auto summary = uprobe::decode_summary(message.bytes);
    counts_.clear();
    if (summary) std::ranges::transform(summary->probes, std::back_inserter(counts_), counts_of);
    has_counts_ = true;
  } else if (message.word == Word::hello) {
    const auto hello = uprobe::decode_hello(message.bytes);
    is_met_ = hello.has_value();
    if (hello) tracer_ = static_cast<int>(hello->known_as);
  } else if (message.word == Word::refused) {
    const auto refusal = uprobe::decode_refusal(message.bytes);
    refusal_ = refusal ? error_of(refusal->error) : ended();
  } else if (message.word == Word::admitted) {
    is_admitted_ = true;
  } else if (message.word == Word::ended) {
    has_ended_ = true;
  }
}

void SelfSession::send(std::string_view bytes) {
  while (!has_ended_ && !bytes.empty()) {
    const ssize_t sent = uprobe::send_some(socket_.get(), bytes);
    if (sent < 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
    pollfd room{.fd = socket_.get(), .events = POLLOUT | POLLIN, .revents = 0};
    if (!bytes.empty() && ::poll(&room, 1, -1) == 1 && (room.revents & ~POLLOUT) != 0) receive();
  }
}

std::optional<Event> SelfSession::take_next(std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  while (events_.empty() && !has_ended_ && wait(until)) {
  }
  if (events_.empty()) return std::nullopt;
  std::optional<Event> event = std::move(events_.front());
  events_.pop_front();
  return event;
}

Status SelfSession::command(const uprobe::Command& command) {
  reply_.reset();
  send(uprobe::encode_command(command));
  while (!reply_ && !has_ended_) wait(std::nullopt);
  if (!reply_) return ended();
  return reply_->error ? Status(error_of(*reply_->error)) : Nothing{};
}

void SelfSession::ask_counts() {
  if (has_ended_) return;
  has_counts_ = false;
  send(uprobe::encode_command({.kind = uprobe::CommandKind::stats, .text = {}, .default_object = {}}));
  while (!has_counts_ && !has_ended_) wait(std::nullopt);
}

void SelfSession::leave() {
  if (socket_) send(uprobe::encode_leave());
  while (socket_ && !has_ended_) wait(std::nullopt);
  let_go();
}

// The intermediate process ends with the tracer, which ends on its own.
void SelfSession::let_go() {
  has_ended_ = true;
  thread_->watch(-1, {});
  socket_.reset();
  life_.reset();
  if (intermediate_ != 0) ::wait4(std::exchange(intermediate_, 0), nullptr, __WCLONE, nullptr);
  if (std::exchange(is_tracer_named_, false)) ::prctl(PR_SET_PTRACER, 0, 0, 0, 0);
}

// The callers' side, which only waits.

std::optional<Event> SelfSession::next(std::chrono::milliseconds patience) {
  std::optional<Event> event;
  thread_->run([&] { event = take_next(patience); });
  return event;
}

std::vector<Event> SelfSession::finish() {
  std::vector<Event> events;
  thread_->run([&] {
    leave();
    events.assign(std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
    events_.clear();
  });
  return events;
}

std::optional<Ending> SelfSession::ending() {
  std::optional<Ending> ending;
  const bool is_known = thread_->run([&] { ending = has_ended_ ? std::optional(Ending{}) : std::nullopt; });
  return is_known ? ending : Ending{};
}

Status SelfSession::ask(uprobe::CommandKind kind, const std::string& text) {
  Status status = Nothing{};
  const bool is_asked = thread_->run([&] { status = command({.kind = kind, .text = text, .default_object = {}}); });
  return is_asked ? status : ended();
}

Status SelfSession::add(const std::string& definition) { return ask(uprobe::CommandKind::define, definition); }
Status SelfSession::remove(const std::string& event) { return ask(uprobe::CommandKind::remove, event); }
Status SelfSession::switch_events(const std::string& event, bool on) {
  return ask(on ? uprobe::CommandKind::enable : uprobe::CommandKind::disable, event);
}

Status SelfSession::reset(const std::string& event) { return ask(uprobe::CommandKind::reset, event); }

Status SelfSession::keep(const std::string& file, std::uint64_t bytes) {
  thread_->run([&] {
    wants_events_ = false;
    events_.clear();
  });
  return ask(uprobe::CommandKind::keep, std::to_string(bytes) + " " + file);
}

Result<std::uint64_t> SelfSession::dump(const std::string& file) {
  Result<std::uint64_t> hits = ended();
  thread_->run([&] {
    const Status done = command({.kind = uprobe::CommandKind::dump, .text = file, .default_object = {}});
    hits = done ? Result<std::uint64_t>(std::strtoull(reply_->text.c_str(), nullptr, 10)) : done.error();
  });
  return hits;
}

std::vector<EventInfo> SelfSession::info(const std::string& event) {
  std::vector<EventInfo> events;
  thread_->run([&] {
    if (!command({.kind = uprobe::CommandKind::info, .text = event, .default_object = {}})) return;
    if (auto known = uprobe::decode_events(reply_->text)) events = infos_of(std::move(*known));
  });
  return events;
}

std::vector<Counts> SelfSession::counts() {
  std::vector<Counts> counts;
  thread_->run([&] {
    ask_counts();
    counts = counts_;
  });
  return counts;
}

void SelfSession::stop() {
  thread_->run([&] { leave(); });
}

}  // namespace libuprobe
