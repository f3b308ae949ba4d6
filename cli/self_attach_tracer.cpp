// SPDX-License-Identifier: MIT
#include "cli/self_attach_tracer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/inheritance.h"
#include "cli/run.h"
#include "engine/base/exhaustion.h"
#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/base/signal_masked_thread.h"
#include "engine/ipc/event_info.h"
#include "engine/ipc/record_queue.h"
#include "engine/ipc/self_attach_protocol.h"
#include "engine/recording/flight.h"
#include "engine/session/session.h"
#include "engine/spec/condition.h"

namespace uprobe::cli {
namespace {

// File names may be relative to the process's present working folder.
template <class Work>
auto where_it_is(pid_t process, Work work) {
  (void)!::chdir(procfs::path(process, "cwd").c_str());
  auto result = work();
  (void)!::chdir("/");
  return result;
}

// The process that has made the socket pair; 0: it is not visible here.
pid_t owner_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

Error about_file(const std::string& path, const char* what, int error) {
  return Error{.code = Code::system,
               .text = std::string(what) + (error == 0 ? "" : std::string(": ") + std::strerror(error)),
               .where = path,
               .err = error};
}

// A file for a recording, as --record has them: the user's alone, and empty.
Result<Fd> empty_file(const std::string& path) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600));
  if (!file) return about_file(path, "cannot be made", errno);
  struct stat about {};
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return about_file(path, "is no regular file", 0);
  if (about.st_size != 0) return about_file(path, "has something in it", 0);
  return file;
}

Status write_flight(const Fd& file, const std::string& path, std::string_view bytes) {
  const int error = write_all(file.get(), bytes.data(), bytes.size());
  return error == 0 ? ok() : Status(about_file(path, "cannot be written", error));
}

// A flight recording, and the file that gets it when the process ends without having left.
struct FlightFile {
  FlightFile(std::size_t limit, Fd empty, std::string its_path)
      : flight(limit), file(std::move(empty)), path(std::move(its_path)) {}

  recording::Flight flight;
  Fd file;
  std::string path;
};

class Line {
 public:
  explicit Line(Fd socket) : socket_(std::move(socket)), process_(owner_of(socket_.get())) {
    if (process_ != 0) life_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0)));
  }

  pid_t process() const { return process_; }

  // The process's request; nothing: the process has gone.
  std::optional<Hello> greet();
  void refuse(const Error& error);
  void admit() { replies_ = encode_admitted({}); }

  // From here on there are two threads. The one that runs the session calls:
  void take(const trace::EventRecord& record, const program::EventLayout& layout, std::string_view task);
  bool is_left() const { return left_ || gone_; }
  void end(ClientEnd why);
  // The process no longer has the socket.
  void give_up() { gone_ = true; }
  // The other one calls this, which returns when the session has ended and the process has been told, or is gone.
  void serve(Session& session);
  // After both: of a process that has ended by itself, the flight recording is written.
  void write_last(const Session& session);

 private:
  void learn(std::uint16_t index, const program::EventLayout& layout);
  void fill();
  void push();
  void wait();
  bool is_all_sent() const { return sent_ == out_.size(); }
  void read_commands(Session& session);
  Reply answer(Session& session, const Command& command);
  Status keep(const std::string& text);
  Result<std::string> dump(const Session& session, const std::string& path) const;
  std::string whole(const Session& session) const;
  std::map<std::string, std::uint64_t> lost_to_reader_lag() const;
  Summary counts_of(const Session& session) const;

  Fd socket_;
  const pid_t process_;
  Fd life_;  // pidfd of the process
  const Fd wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  MessageCutter in_;
  std::string out_, replies_;
  std::size_t sent_ = 0;
  std::string waiting_;  // records; those before `cut_` are in `out_`, or sent
  std::size_t cut_ = 0;
  std::atomic<bool> left_{false}, gone_{false}, told_{false}, over_{false};
  ClientEnd why_ = ClientEnd::left;  // valid once it is over

  std::unique_ptr<FlightFile> flight_file_;
  std::atomic<FlightFile*> flight_{nullptr};  // the same, for the session's thread
  RecordQueue records_;
  mutable std::mutex lock_;         // guards the next two
  std::string layouts_;             // whole messages
  std::vector<std::string> names_;  // by index; empty: no record yet
};

void Line::wait() {
  const auto out = static_cast<short>(is_all_sent() ? 0 : POLLOUT);
  pollfd all[] = {{.fd = socket_.get(), .events = static_cast<short>(POLLIN | out), .revents = 0},
                  {.fd = wake_.get(), .events = POLLIN, .revents = 0},
                  {.fd = life_.get(), .events = POLLIN, .revents = 0}};
  ::poll(all, std::size(all), -1);
  eventfd_t count = 0;
  ::eventfd_read(wake_.get(), &count);
  if (all[2].revents != 0 || (all[0].revents != 0 && !receive_some(socket_.get(), in_))) gone_ = true;
}

void Line::push() {
  while (!gone_ && !is_all_sent()) {
    const ssize_t sent = send_some(socket_.get(), std::string_view(out_).substr(sent_));
    if (sent < 0) gone_ = true;
    if (sent <= 0) return;
    sent_ += static_cast<std::size_t>(sent);
  }
}

std::optional<Hello> Line::greet() {
  out_ = encode(
      Hello{.processes = {}, .known_as = static_cast<std::uint32_t>(::getpid()), .folder = {}, .definitions = {}});
  for (push(); !gone_; push()) {
    if (const auto message = in_.next())
      return message->word == Word::hello ? decode_hello(message->bytes) : std::nullopt;
    if (in_.is_bad()) return std::nullopt;
    wait();
  }
  return std::nullopt;
}

void Line::refuse(const Error& error) {
  out_ = encode(Refusal{.error = error});
  sent_ = 0;
  for (push(); !gone_ && !is_all_sent(); push()) wait();
}

void Line::learn(std::uint16_t index, const program::EventLayout& layout) {
  const std::lock_guard lock(lock_);
  if (names_.size() <= index) names_.resize(index + std::size_t{1});
  if (!names_[index].empty()) return;
  names_[index] = layout.group + "/" + layout.event;
  layouts_ += encode(LayoutMessage{.index = index, .layout = layout});
}

void Line::take(const trace::EventRecord& record, const program::EventLayout& layout, std::string_view task) {
  if (FlightFile* const kept = flight_) return kept->flight.take(record, layout, task);
  learn(record.type, layout);
  records_.take({record.type, record, task});
  if (!told_.exchange(true)) ::eventfd_write(wake_.get(), 1);
}

void Line::end(ClientEnd why) {
  why_ = why;
  over_ = true;
  ::eventfd_write(wake_.get(), 1);
}

// Takes the records first: their layouts are there before them. A reply waits for only a few records.
void Line::fill() {
  constexpr std::size_t kPiece = 64 << 10;
  told_ = false;
  if (waiting_.size() == cut_) records_.swap_out(waiting_), cut_ = 0;
  out_ = std::exchange(replies_, {});
  sent_ = 0;
  {
    const std::lock_guard lock(lock_);
    out_ += std::exchange(layouts_, {});
  }
  const std::size_t piece = some_messages(std::string_view(waiting_).substr(cut_), kPiece);
  out_.append(waiting_, cut_, piece);
  cut_ += piece;
}

std::map<std::string, std::uint64_t> Line::lost_to_reader_lag() const {
  std::map<std::string, std::uint64_t> lost;
  const std::lock_guard lock(lock_);
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (const std::uint64_t count = records_.lost(i); count != 0) lost[names_[i]] += count;
  return lost;
}

Summary Line::counts_of(const Session& session) const {
  Summary summary;
  if (over_) summary = session.summary();
  if (!over_)
    for (const ProbeState& probe : session.probes()) {
      ProbeSummary& line = summary.probes.emplace_back();
      line.name = probe.name, line.hits = probe.hits, line.lost_full = probe.lost, line.missed = probe.missed;
    }
  auto lag = lost_to_reader_lag();
  for (auto probe = summary.probes.rbegin(); probe != summary.probes.rend(); ++probe)
    probe->lost_to_reader_lag = std::exchange(lag[probe->name], 0);
  return summary;
}

Reply Line::answer(Session& session, const Command& command) {
  Reply reply;
  const auto say = [&](const auto& result) {
    if (!result) reply.error = result.error();
  };
  const Status done = catch_resource_exhaustion([&] {
    if (command.kind == CommandKind::define)
      say(where_it_is(process_, [&] { return session.define({command.text, command.default_object}); }));
    else if (command.kind == CommandKind::remove)
      say(session.remove(command.text));
    else if (command.kind == CommandKind::reset)
      say(session.reset_counts(command.text));
    else if (command.kind == CommandKind::info)
      reply.text = encode(events_of(session.probes(command.text)));
    else if (command.kind == CommandKind::keep)
      say(where_it_is(process_, [&] { return keep(command.text); }));
    else if (command.kind == CommandKind::dump) {
      auto written = where_it_is(process_, [&] { return dump(session, command.text); });
      say(written);
      if (written) reply.text = written.take();
    } else
      say(session.switch_events(command.text, command.kind == CommandKind::enable));
    return ok();
  });
  say(done);
  return reply;
}

// "BYTES FILE". Once.
Status Line::keep(const std::string& text) {
  constexpr std::size_t kLeast = 64 << 10, kMost = std::size_t{1} << 30;
  std::size_t limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  const std::string path(end, text.data() + text.size());
  if (error != std::errc() || path.size() < 2 || flight_file_)
    return Error{.code = Code::damaged, .text = "no such request"};
  if (limit < kLeast || limit > kMost)
    return Error{.code = Code::refused, .text = "a flight recording keeps 64 KiB to 1 GiB"};
  auto file = empty_file(path.substr(1));
  if (!file) return file.error();
  flight_file_ = std::make_unique<FlightFile>(limit, file.take(), path.substr(1));
  flight_ = flight_file_.get();
  return ok();
}

std::string Line::whole(const Session& session) const {
  std::vector<format::Total> totals;
  for (const ProbeSummary& probe : counts_of(session).probes)
    totals.push_back({.name = probe.name,
                      .recorded = probe.recorded,
                      .lost = probe.lost_full + probe.lost_too_big + probe.lost_busy,
                      .missed = probe.missed});
  return flight_file_->flight.whole(totals);
}

// The number of hits in it.
Result<std::string> Line::dump(const Session& session, const std::string& path) const {
  if (!flight_file_) return Error{.code = Code::refused, .text = "there is no flight recording"};
  const auto file = empty_file(path);
  if (!file) return file.error();
  const std::uint64_t hits = flight_file_->flight.kept();
  RETURN_IF_ERROR(write_flight(*file, path, whole(session)));
  return std::to_string(hits);
}

// No process is there to which an error could be told.
void Line::write_last(const Session& session) {
  if (!flight_file_ || left_) return;
  static_cast<void>(write_flight(flight_file_->file, flight_file_->path, whole(session)));
}

void Line::read_commands(Session& session) {
  while (const auto message = in_.next()) {
    if (message->word == Word::leave) left_ = true;
    const auto command = message->word == Word::command ? decode_command(message->bytes) : std::nullopt;
    if (!command) continue;
    if (command->kind == CommandKind::stats)
      replies_ += encode(counts_of(session));
    else
      replies_ += encode_reply(answer(session, *command));
  }
  if (in_.is_bad()) gone_ = true;
}

void Line::serve(Session& session) {
  for (bool has_ended = false; !gone_;) {
    const bool is_over = over_;  // read before the last records are looked for
    if (is_all_sent()) fill();
    if (is_all_sent() && has_ended) return;
    if (is_all_sent() && is_over) {
      out_ = encode(counts_of(session)) + encode(why_);
      has_ended = true;
    }
    if (is_all_sent()) wait();
    push();
    if (!is_all_sent()) wait();
    read_commands(session);
  }
}

// `words`: "COUNT,GATE" with the gate as the trigger has it.
void add_callbacks(SessionOptions& options, const std::string& words) {
  const std::size_t count = std::min<std::size_t>(std::strtoul(words.c_str(), nullptr, 10), options.definitions.size());
  const std::size_t comma = words.find(',');
  if (count == 0 || comma == std::string::npos) return;
  options.allows_change = options.allows_callbacks = true;
  for (std::size_t i = 0; i < count; ++i) {
    Definition& definition = options.definitions[options.definitions.size() - count + i];
    const auto parts = spec::split_condition(definition.text, false);
    const bool has_condition = parts && parts->filter;
    definition.triggers.push_back("call=" + std::to_string(i) + words.substr(comma) +
                                  (has_condition ? " if " + std::string(*parts->filter) : ""));
  }
}

Result<Session> begin(const Hello& hello, char** argv, pid_t process) {
  if (process == 0 || hello.processes != std::vector{static_cast<std::uint32_t>(process)})
    return Error{.code = Code::refused, .text = "the peer is not the process that created the socket"};
  SessionOptions options;
  options.definitions = hello.definitions;
  options.unseen_thread = static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10));
  options.ring_bytes = std::strtoull(argv[3], nullptr, 10);
  options.agent_path = argv[4];
  add_callbacks(options, argv[5]);
  options.returns = plan::ReturnMode::exits;  // return stubs could not be given back
  auto session = Session::prepare(options);
  if (!session) return session;
  Selection whom;
  whom.pids = {process};
  RETURN_IF_ERROR(session->attach(whom, is_asked_to_end));
  return session;
}

int run_session(Line& line, Session& session) {
  line.admit();
  std::thread talker = start_signal_masked_thread(
      [&] {
        const Status served = catch_resource_exhaustion([&] { return line.serve(session), ok(); });
        if (!served) line.give_up();
      },
      {SIGCHLD});
  RunOptions options;
  options.detach_requested = [&] { return line.is_left() || is_asked_to_end(); };
  const RecordSink sink = [&](const auto& record, const auto& layout, std::string_view task) {
    line.take(record, layout, task);
  };
  ClientEnd why = ClientEnd::owner;
  const Status ran = catch_resource_exhaustion([&]() -> Status {
    const auto ended = session.run(options, sink);
    if (!ended) return ended.error();
    why = ended->detached ? ClientEnd::left : ClientEnd::processes;
    return ok();
  });
  line.end(why);
  talker.join();
  line.write_last(session);
  return ran ? 0 : kExitFailure;
}

// The process has given the tracer nothing but the socket.
Fd take_socket() {
  Fd socket(::fcntl(kAttendSocket, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null) ::dup2(null.get(), kAttendSocket);
  return socket;
}

}  // namespace

bool is_self_attach_tracer_call(int argc, char** argv) {
  return argc == kAttendWords && std::string_view(argv[1]) == kAttendOption;
}

int run_self_attach_tracer(char** argv) {
  shed_inheritance();
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  Line line(take_socket());
  const auto hello = line.greet();
  if (!hello) return kExitFailure;
  auto session = where_it_is(line.process(), [&] { return begin(*hello, argv, line.process()); });
  if (!session) {
    line.refuse(session.error());
    return kExitFailure;
  }
  return run_session(line, *session);
}

}  // namespace uprobe::cli
