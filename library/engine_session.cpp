// SPDX-License-Identifier: MIT
#include "library/engine_session.h"

#include "engine/base/exhaustion.h"
#include "library/values.h"

namespace libuprobe {
namespace {

uprobe::SessionOptions engine_options(const Options& options) {
  uprobe::SessionOptions wanted;
  for (const std::string& definition : options.definitions) wanted.definitions.push_back({definition, {}});
  wanted.ring_bytes = options.buffer_bytes;
  wanted.agent_path = options.agent;
  return wanted;
}

}  // namespace

EngineSession::~EngineSession() {
  if (attached_ != 0) stop_ = true;
  session_.kill_program();
  if (thread_.joinable()) thread_.join();
}

Result<std::unique_ptr<Tracer>> EngineSession::launch(const Options& options, const std::vector<std::string>& argv) {
  if (argv.empty()) return Error{.text = "no program to run"};
  auto prepared = uprobe::Session::prepare(engine_options(options));
  if (!prepared) return error_of(prepared.error());
  auto session = std::make_unique<EngineSession>(prepared.take());
  if (auto launched = session->session_.launch(argv); !launched) return error_of(launched.error());
  session->start();
  return std::unique_ptr<Tracer>(std::move(session));
}

Result<std::unique_ptr<Tracer>> EngineSession::attach(const Options& options, int pid) {
  uprobe::SessionOptions wanted = engine_options(options);
  wanted.returns = uprobe::plan::ReturnMode::exits;  // return stubs could not be given back
  auto prepared = uprobe::Session::prepare(wanted);
  if (!prepared) return error_of(prepared.error());
  auto session = std::make_unique<EngineSession>(prepared.take());
  uprobe::Selection whom;
  whom.pids = {pid};
  if (auto attached = session->session_.attach(whom, [] { return false; }); !attached)
    return error_of(attached.error());
  session->attached_ = pid;
  session->start();
  return std::unique_ptr<Tracer>(std::move(session));
}

void EngineSession::take(Event event) {
  const std::lock_guard lock(lock_);
  events_.push_back(std::move(event));
  changed_.notify_all();
}

void EngineSession::run() {
  uprobe::RunOptions options;
  options.detach_requested = [this] { return stop_.load(); };
  const uprobe::RecordSink sink = [this](const auto& record, const auto& layout, std::string_view task) {
    take(event_of(record, layout, task));
  };
  Ending ending;
  static_cast<void>(uprobe::catch_resource_exhaustion([&]() -> uprobe::Status {
    const auto ended = session_.run(options, sink);
    if (!ended) return ended.error();
    ending = {.signalled = ended->signalled, .code = ended->code};
    for (const uprobe::ProbeSummary& probe : session_.summary().probes) last_counts_.push_back(counts_of(probe));
    return uprobe::ok();
  }));
  const std::lock_guard lock(lock_);
  ending_ = ending;
  changed_.notify_all();
}

int EngineSession::pid() const { return attached_ != 0 ? attached_ : session_.child_pid(); }

std::optional<Event> EngineSession::next(std::chrono::milliseconds patience) {
  std::unique_lock lock(lock_);
  changed_.wait_for(lock, patience, [this] { return !events_.empty() || ending_; });
  if (events_.empty()) return std::nullopt;
  std::optional<Event> event = std::move(events_.front());
  events_.pop_front();
  return event;
}

std::vector<Event> EngineSession::finish() {
  std::unique_lock lock(lock_);
  changed_.wait(lock, [this] { return ending_.has_value(); });
  std::vector<Event> events(std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
  events_.clear();
  return events;
}

std::optional<Ending> EngineSession::ending() {
  const std::lock_guard lock(lock_);
  return ending_;
}

Status EngineSession::add(const std::string& definition) { return status_of(session_.define({definition, {}})); }
Status EngineSession::remove(const std::string& event) { return status_of(session_.remove(event)); }
Status EngineSession::switch_events(const std::string& event, bool on) {
  return status_of(session_.switch_events(event, on));
}

Status EngineSession::reset(const std::string& event) { return status_of(session_.reset_counts(event)); }

std::vector<EventInfo> EngineSession::info(const std::string& event) {
  return infos_of(uprobe::events_of(session_.probes(event)));
}

std::vector<Counts> EngineSession::counts() {
  {
    const std::lock_guard lock(lock_);
    if (ending_) return last_counts_;
  }
  std::vector<Counts> counts;
  for (const uprobe::ProbeState& probe : session_.probes())
    counts.push_back({.name = probe.name, .hits = probe.hits, .lost = probe.lost, .missed = probe.missed});
  return counts;
}

// The session's thread checks it between two polls. Then an attached session ends, a launched one ends with its program.
void EngineSession::stop() {
  stop_ = true;
  const auto goes_on = [&] { return attached_ != 0 || session_.is_recording(); };
  while (!ending() && goes_on()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace libuprobe
