// SPDX-License-Identifier: MIT
// The facade puts the parts of a session together and passes calls on to them.
#include "engine/session/session.h"

#include <utility>

#include "engine/inject/preloaded.h"
#include "engine/pictures/counters.h"
#include "engine/process/processes.h"
#include "engine/proxy/memory.h"
#include "engine/resolve/programs.h"
#include "engine/service/course.h"
#include "engine/session/attacher.h"
#include "engine/session/client_service.h"
#include "engine/session/client_tool.h"
#include "engine/session/end_watch.h"
#include "engine/session/event_changes.h"
#include "engine/session/event_table.h"
#include "engine/session/reader_thread.h"
#include "engine/session/recipient.h"
#include "engine/session/recording.h"
#include "engine/session/report.h"
#include "engine/session/run_loop.h"
#include "engine/session/sockets.h"
#include "engine/session/targets.h"

namespace uprobe {
namespace {

std::uint64_t power_of_two(std::uint64_t n) {
  std::uint64_t power = shared::kMinRingBytes;
  while (power < n && power < shared::kMaxRingBytes) power *= 2;
  return power;
}

SessionOptions with_rounded_rings(SessionOptions options) {
  if (options.ring_bytes) options.ring_bytes = power_of_two(*options.ring_bytes);
  return options;
}

}  // namespace

// A part knows the parts above it; the reader thread alone also calls one below it.
struct Session::State {
  explicit State(const SessionOptions& wanted) : options(with_rounded_rings(wanted)) {}
  ~State() {
    reader.join();
    if (recording.has_area()) loop.stop_tracing();
    sockets.drop_clients();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Status serve() {
    const auto rows = [this] {
      return changes.alone(
          [this] { return recording.is_on() ? report.calls(options.sums_by_process) : std::vector<CallSummary>(); });
    };
    return sockets.serve(changes, rows, clients.calls());
  }
  Status launch(const std::string& program, const std::vector<std::string>& argv);
  std::unique_ptr<Recipient> make_printer_for(const RunOptions& how, const Output& output);
  Course::Needs course_needs();
  std::vector<Course::FirstProcess> first_processes();

  const SessionOptions options;
  Messages messages;
  EventTable table{options};
  Recording recording{options, table};
  Targets targets{options, table, recording, messages};
  EventChanges changes{options, table, recording, targets};
  EndWatch ends{targets, recording};
  Sockets sockets{options, table, recording, messages};
  ClientTool client_tool{options, table, targets};
  Attacher attacher{options,
                    {.table = table,
                     .recording = recording,
                     .targets = targets,
                     .ends = ends,
                     .sockets = sockets,
                     .client_tool = client_tool,
                     .messages = messages}};
  Report report{options, table, recording, targets, messages};
  ReaderThread reader{recording.own(), [this] { return loop.read_for_clients(); }};
  ClientService clients{options,
                        {.table = table,
                         .recording = recording,
                         .targets = targets,
                         .attacher = attacher,
                         .changes = changes,
                         .reader = reader,
                         .report = report}};
  Course course{course_needs()};
  RunLoop loop{{.recording = recording,
                .targets = targets,
                .ends = ends,
                .attacher = attacher,
                .sockets = sockets,
                .changes = changes,
                .reader = reader,
                .client_tool = client_tool,
                .clients = clients,
                .course = course}};
};

// It knows the events with which the session begins, and has written what stands before the first record.
std::unique_ptr<Recipient> Session::State::make_printer_for(const RunOptions& how, const Output& output) {
  auto printer =
      make_printer(table.probes(), how, output, shown_characters(options), recording.symbols(), options.allows_change);
  table.alone([&] { printer->learn_events(); });
  return printer;
}

std::vector<Course::FirstProcess> Session::State::first_processes() {
  const std::uint64_t began = recording.began_ns();
  std::vector<Course::FirstProcess> all;
  for (const pid_t pid : targets.roots()) {
    const trace::Task task = recording.names().called(static_cast<std::uint32_t>(pid));
    all.push_back({pid, began, std::string(recording.names().name(task, began))});
  }
  return all;
}

Course::Needs Session::State::course_needs() {
  return {.tell = [this](const CourseRelay::Item& item) { recording.own().tell_course(item); },
          .watch = [this](ProcessWatch* watch) { recording.own().watch(watch); },
          .note = [this](std::string text) { messages.notes.push_back(std::move(text)); },
          .area = [this]() -> const trace::Area& { return recording.area(); },
          .first = [this] { return first_processes(); },
          .has_handed_on = [this](std::uint64_t ns) { return recording.has_handed_on(ns); },
          .own_child = [this] { return targets.awaits_program() ? targets.child() : 0; },
          .mappings = [this] { return targets.has_mail() ? targets.mail().mappings() : nullptr; },
          .progress = [this] { return changes.progress(); }};
}

namespace {

Status check_counters(const std::vector<std::string>& counters, const std::vector<Probe>& probes) {
  std::vector<program::EventLayout> layouts;
  layouts.reserve(counters.empty() ? 0 : probes.size());
  for (const Probe& probe : probes)
    if (!counters.empty()) layouts.push_back(probe.program.layout);
  return format::check_counters(counters, layouts);
}

}  // namespace

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::prepare(const SessionOptions& options) {
  proxy::stand_in_for_procfs();
  const std::uint64_t ring_bytes = options.ring_bytes.value_or(shared::kMaxRingBytes);
  if (ring_bytes < shared::kMinRingBytes || ring_bytes > shared::kMaxRingBytes)
    return Error{.code = Code::limit, .text = "ring size out of range: allowed are 8K to 1G"};
  auto state = std::make_unique<State>(options);
  RETURN_IF_ERROR(check_strings(state->options));
  RETURN_IF_ERROR(state->table.prepare(options.definitions));
  RETURN_IF_ERROR(check_counters(options.counters, state->table.probes()));
  state->messages.notes = state->table.notes();
  RETURN_IF_ERROR(state->report.check_tiers());
  return Session(std::move(state));
}

std::vector<PlanReport> Session::report(const std::vector<int>& pids) const { return state_->report.plan(pids); }

Status Session::State::launch(const std::string& program, const std::vector<std::string>& argv) {
  RETURN_IF_ERROR(targets.launch(program, argv, [this] { return sockets.open(); }));
  return targets.ended_early() ? ok() : serve();
}

Status Session::launch(const std::vector<std::string>& argv) {
  auto program = find_program(argv[0]);
  if (!program) return program.error();
  if (control::gains_privileges(*program))
    return Error{.code = Code::refused,
                 .text = "is a set-id program or has capabilities: traced, it would run without them",
                 .where = *program};
  State& s = *state_;
  RETURN_IF_ERROR(s.targets.open_agent());
  Status launched = s.launch(*program, argv);
  if (!launched || s.targets.ended_early()) s.sockets.close();
  return launched;
}

Status Session::attach(const Selection& whom, const GivenUp& given_up) {
  State& s = *state_;
  RETURN_IF_ERROR(s.attacher.prepare(whom));
  if (Status begun = s.attacher.attach_or_join(given_up); !begun || s.client_tool.has_joined()) return begun;
  if (Status found = s.attacher.find_others(given_up); !found) {
    s.loop.stop_tracing();
    return found;
  }
  return s.serve();
}

Status Session::adopt(control::Preloaded& program) {
  State& s = *state_;
  RETURN_IF_ERROR(s.targets.make_area());
  const auto load = [&] { return program.load(s.recording.area(), s.table.planned().block_needs()); };
  return s.targets.arm(program.target(), load);
}

Status Session::follow(const control::Preloaded& program, const RunOptions& options, const Output& output) {
  const auto printer = state_->make_printer_for(options, output);
  state_->loop.follow(program, options, *printer);
  printer->end([this] { return summary(); });
  return ok();
}

Result<Ending> Session::run(const RunOptions& options, const Output& output) {
  const auto printer = state_->make_printer_for(options, output);
  Result<Ending> ending = state_->loop.run(options, *printer);
  if (printer->is_full()) state_->report.limit_hits(printer->taken());
  if (!printer->why_full().empty()) state_->messages.notes.emplace_back(printer->why_full());
  state_->report.note_unwritten(printer->unwritten());
  printer->end([this] { return summary(); });
  return ending;
}

Result<Ending> Session::run(const RunOptions& options, const RecordSink& sink) {
  const auto forwarder = make_forwarder(state_->table.probes(), sink);
  return state_->loop.run(options, *forwarder);
}

bool Session::has_clients() const {
  State& s = *state_;
  if (!s.reader.is_there()) return false;
  if (!s.clients.close_if_alone()) return true;
  s.reader.join();
  return false;
}

void Session::serve_clients() { state_->reader.join(); }

int Session::child_pid() const { return state_->targets.child(); }
void Session::let_program_end() { state_->ends.end_flush(); }
bool Session::is_recording() const { return state_->recording.is_on(); }
void Session::kill_program() { state_->targets.kill_program(); }

Summary Session::summary() const {
  State& s = *state_;
  if (s.client_tool.has_joined()) return s.client_tool.summary();
  if (s.clients.own_summary()) return *s.clients.own_summary();
  return s.targets.has_mail() ? s.report.summary_of(0, nullptr) : s.report.empty_summary();
}

std::uint32_t Session::snapshots() const { return state_->report.snapshots(); }
std::vector<CallSummary> Session::calls() const { return state_->report.calls(false); }
std::vector<CallSummary> Session::rows_of_calls() const {
  return state_->report.calls(state_->options.sums_by_process);
}
std::string Session::histograms(bool raw_strings) const { return state_->report.histograms(raw_strings); }

Result<Changes> Session::define(const Definition& definition) { return state_->changes.define(definition); }
Result<Changes> Session::remove(const std::string& name) { return state_->changes.remove(name); }
Result<std::size_t> Session::switch_events(const std::string& name, bool on) {
  return state_->changes.switch_events(name, on);
}
Result<std::size_t> Session::reset_counts(const std::string& name) { return state_->changes.reset_counts(name); }
std::vector<ProbeState> Session::probes(const std::string& name) const { return state_->changes.list(name); }
std::optional<std::vector<EventProgress>> Session::progress() const { return state_->changes.progress(); }

}  // namespace uprobe
