// The installed interface over the engine.
#include "library/uprobe/session.h"

#include <unistd.h>

#include "library/engine_session.h"
#include "library/own_session.h"

namespace libuprobe {

Session::Session(std::unique_ptr<Tracer> tracer) : tracer_(std::move(tracer)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&& other) noexcept {
  const Session old(std::exchange(tracer_, std::move(other.tracer_)));
  return *this;
}
// In a child it is left alone: the session is its parent's.
Session::~Session() {
  if (tracer_ && !tracer_->is_here()) static_cast<void>(tracer_.release());
}

Result<Session> Session::launch(const Options& options, const std::vector<std::string>& argv) {
  auto tracer = EngineSession::launch(options, argv);
  if (!tracer) return tracer.error();
  return Session(std::move(*tracer));
}

Result<Session> Session::attach(const Options& options, int pid) {
  auto tracer = pid == ::getpid() ? OwnSession::begin(options) : EngineSession::attach(options, pid);
  if (!tracer) return tracer.error();
  return Session(std::move(*tracer));
}

namespace {

Error elsewhere() { return Error{.text = "the session is that of another process, which this one is a child of"}; }

}  // namespace

int Session::pid() const { return tracer_->pid(); }

std::optional<Event> Session::next(std::chrono::milliseconds patience) {
  if (!tracer_->is_here()) return std::nullopt;
  return tracer_->next(patience);
}

std::vector<Event> Session::finish() {
  if (!tracer_->is_here()) return {};
  return tracer_->finish();
}

std::optional<Ending> Session::ending() const {
  if (!tracer_->is_here()) return std::nullopt;
  return tracer_->ending();
}

Status Session::add(const std::string& definition) {
  return tracer_->is_here() ? tracer_->add(definition) : elsewhere();
}

Status Session::remove(const std::string& event) { return tracer_->is_here() ? tracer_->remove(event) : elsewhere(); }

Status Session::disable(const std::string& event) {
  return tracer_->is_here() ? tracer_->switch_events(event, false) : elsewhere();
}

Status Session::enable(const std::string& event) {
  return tracer_->is_here() ? tracer_->switch_events(event, true) : elsewhere();
}

std::vector<Counts> Session::counts() const {
  if (!tracer_->is_here()) return {};
  return tracer_->counts();
}

void Session::stop() {
  if (tracer_->is_here()) tracer_->stop();
}

}  // namespace libuprobe
