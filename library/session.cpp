// The installed interface over the engine: a thread runs the session, and what it reads waits in a queue.
#include "library/uprobe/session.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <span>
#include <thread>

#include "engine/base/exhaustion.h"
#include "engine/program/layout.h"
#include "engine/session.h"
#include "engine/trace/event_record.h"

namespace libuprobe {
namespace {

using Payload = std::span<const std::uint8_t>;

template <class T>
T load(Payload payload, std::size_t at) {
  T value{};
  if (at + sizeof value <= payload.size()) std::memcpy(&value, payload.data() + at, sizeof value);
  return value;
}

// The locator's length counts the NUL; one that leads nowhere is a fault (engine/shared/event_program.h).
Value string_at(Payload payload, std::uint32_t fixed_bytes, std::size_t at) {
  const auto locator = load<std::uint32_t>(payload, at);
  const std::uint32_t offset = locator & 0xffff, length = locator >> 16;
  if (length == 0 || offset < fixed_bytes || offset + length > payload.size()) return {};
  const auto* text = reinterpret_cast<const char*>(payload.data() + offset);
  return {.kind = Value::Kind::text, .text = std::string(text, ::strnlen(text, length))};
}

Value number_at(Payload payload, std::size_t at, std::uint32_t size, bool is_signed) {
  auto number = load<std::uint64_t>(payload, at);
  if (at + sizeof number > payload.size() && at + size <= payload.size()) {
    number = 0;
    std::memcpy(&number, payload.data() + at, size);
  }
  const unsigned unused = 64 - 8 * size;
  number = is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(number << unused) >> unused)
                     : number << unused >> unused;
  return {.kind = is_signed ? Value::Kind::signed_number : Value::Kind::unsigned_number, .number = number};
}

Value scalar_at(Payload payload, const uprobe::program::EventLayout& layout, const uprobe::program::Field& field,
                std::size_t at) {
  if (field.kind == uprobe::spec::Kind::string) return string_at(payload, layout.fixed_bytes, at);
  if (field.kind != uprobe::spec::Kind::character)
    return number_at(payload, at, field.size, field.kind == uprobe::spec::Kind::signed_decimal);
  return {.kind = Value::Kind::text, .text = std::string(1, static_cast<char>(load<std::uint8_t>(payload, at)))};
}

Value value_of(Payload payload, const uprobe::program::EventLayout& layout, const uprobe::program::Field& field) {
  if (field.count == 0) return scalar_at(payload, layout, field, field.offset);
  Value array{.kind = Value::Kind::array};
  for (std::uint32_t i = 0; i < field.count; ++i)
    array.elements.push_back(scalar_at(payload, layout, field, field.offset + i * field.size));
  return array;
}

Event event_of(const uprobe::trace::EventRecord& record, const uprobe::program::EventLayout& layout,
               std::string_view task) {
  Event event{.group = layout.group, .name = layout.event, .task = std::string(task), .pid = record.tid};
  event.cpu = record.cpu;
  event.nanoseconds = record.ns;
  event.address = load<std::uint64_t>(record.payload, offsetof(uprobe::shared::PayloadHead, ip));
  if (layout.is_return)
    event.return_address = load<std::uint64_t>(record.payload, offsetof(uprobe::shared::ReturnHead, return_ip));
  for (const uprobe::program::Field& field : layout.fields)
    event.fields.push_back({field.name, value_of(record.payload, layout, field)});
  return event;
}

Error error_of(const uprobe::Error& error) {
  return {.text = error.text, .definition = error.where, .column = error.column, .help = error.help};
}

template <class T>
Status status_of(const uprobe::Result<T>& result) {
  if (!result) return error_of(result.error());
  return Nothing{};
}

}  // namespace

std::string Error::message() const {
  std::string message = text;
  if (column < 0 && !definition.empty()) message = definition + ": " + text;
  if (column >= 0) message += "\n  " + definition + "\n  " + std::string(static_cast<std::size_t>(column), ' ') + "^";
  return help.empty() ? message : message + "\n  " + help;
}

const Value* Event::find(std::string_view field) const {
  for (const Field& one : fields)
    if (one.name == field) return &one.value;
  return nullptr;
}

std::optional<std::int64_t> Event::number(std::string_view field) const {
  const Value* value = find(field);
  const bool is_number =
      value != nullptr && (value->kind == Value::Kind::unsigned_number || value->kind == Value::Kind::signed_number);
  return is_number ? std::optional(static_cast<std::int64_t>(value->number)) : std::nullopt;
}

std::optional<std::string> Event::text(std::string_view field) const {
  const Value* value = find(field);
  return value != nullptr && value->kind == Value::Kind::text ? std::optional(value->text) : std::nullopt;
}

struct Session::State {
  explicit State(uprobe::Session session) : session_(std::move(session)) {}
  ~State() {
    if (attached_ != 0) stop_ = true;
    session_.kill_program();
    if (thread_.joinable()) thread_.join();
  }

  void start() {
    thread_ = std::thread([this] { run(); });
  }
  void run();
  void take(Event event) {
    const std::lock_guard lock(lock_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  std::vector<Counts> counts_now() const;

  uprobe::Session session_;
  int attached_ = 0;  // process id; 0: the program was launched
  std::atomic<bool> stop_{false};
  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  std::optional<Ending> ending_;
  std::vector<Counts> last_counts_;  // once it has ended
  std::thread thread_;
};

void Session::State::run() {
  uprobe::RunOptions options;
  options.detach_requested = [this] { return stop_.load(); };
  const uprobe::RecordSink sink = [this](const auto& record, const auto& layout, std::string_view task) {
    take(event_of(record, layout, task));
  };
  Ending ending;
  static_cast<void>(uprobe::survive_exhaustion([&]() -> uprobe::Status {
    const auto ended = session_.run(options, sink);
    if (!ended) return ended.error();
    ending = {.signalled = ended->signalled, .code = ended->code};
    for (const uprobe::ProbeSummary& probe : session_.summary().probes)
      last_counts_.push_back({.name = probe.name,
                              .hits = probe.hits,
                              .lost = probe.lost_full + probe.lost_too_big + probe.lost_busy,
                              .missed = probe.missed});
    return uprobe::ok();
  }));
  const std::lock_guard lock(lock_);
  ending_ = ending;
  changed_.notify_all();
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

namespace {

uprobe::SessionOptions engine_options(const Options& options) {
  uprobe::SessionOptions wanted;
  for (const std::string& definition : options.definitions) wanted.definitions.push_back({definition, {}});
  wanted.ring_bytes = options.buffer_bytes;
  wanted.agent_path = options.agent;
  return wanted;
}

}  // namespace

Result<Session> Session::launch(const Options& options, const std::vector<std::string>& argv) {
  if (argv.empty()) return Error{.text = "no program to run"};
  auto prepared = uprobe::Session::prepare(engine_options(options));
  if (!prepared) return error_of(prepared.error());
  auto state = std::make_unique<State>(prepared.take());
  if (auto launched = state->session_.launch(argv); !launched) return error_of(launched.error());
  state->start();
  return Session(std::move(state));
}

Result<Session> Session::attach(const Options& options, int pid) {
  if (pid == ::getpid())
    return Error{.text = "a process cannot attach to itself", .help = "attach from a process that it starts"};
  uprobe::SessionOptions wanted = engine_options(options);
  wanted.returns = uprobe::plan::ReturnMode::exits;  // what returns by a stub could not be given back
  auto prepared = uprobe::Session::prepare(wanted);
  if (!prepared) return error_of(prepared.error());
  auto state = std::make_unique<State>(prepared.take());
  uprobe::Selection whom;
  whom.pids = {pid};
  if (auto attached = state->session_.attach(whom, [] { return false; }); !attached) return error_of(attached.error());
  state->attached_ = pid;
  state->start();
  return Session(std::move(state));
}

int Session::pid() const { return state_->attached_ != 0 ? state_->attached_ : state_->session_.child_pid(); }

std::optional<Event> Session::next(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->lock_);
  state_->changed_.wait_for(lock, patience, [this] { return !state_->events_.empty() || state_->ending_; });
  if (state_->events_.empty()) return std::nullopt;
  std::optional<Event> event = std::move(state_->events_.front());
  state_->events_.pop_front();
  return event;
}

std::vector<Event> Session::finish() {
  std::unique_lock lock(state_->lock_);
  state_->changed_.wait(lock, [this] { return state_->ending_.has_value(); });
  std::vector<Event> events(std::make_move_iterator(state_->events_.begin()),
                            std::make_move_iterator(state_->events_.end()));
  state_->events_.clear();
  return events;
}

std::optional<Ending> Session::ending() const {
  const std::lock_guard lock(state_->lock_);
  return state_->ending_;
}

Status Session::add(const std::string& definition) { return status_of(state_->session_.define({definition, {}})); }
Status Session::remove(const std::string& event) { return status_of(state_->session_.remove(event)); }
Status Session::disable(const std::string& event) { return status_of(state_->session_.switch_events(event, false)); }
Status Session::enable(const std::string& event) { return status_of(state_->session_.switch_events(event, true)); }

std::vector<Counts> Session::counts() const {
  {
    const std::lock_guard lock(state_->lock_);
    if (state_->ending_) return state_->last_counts_;
  }
  std::vector<Counts> counts;
  for (const uprobe::ProbeState& probe : state_->session_.probes())
    counts.push_back({.name = probe.name, .hits = probe.hits, .lost = probe.lost, .missed = probe.missed});
  return counts;
}

// The thread that runs the session looks at it between two polls. With what it has attached to it ends, else with the program.
void Session::stop() {
  state_->stop_ = true;
  const auto goes_on = [&] { return state_->attached_ != 0 || state_->session_.is_recording(); };
  while (!ending() && goes_on()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace libuprobe
