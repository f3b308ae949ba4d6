// SPDX-License-Identifier: MIT
// The installed interface on top of the engine.
#include "library/uprobe/session.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "library/engine_session.h"
#include "library/installed.h"
#include "library/self_session.h"

namespace libuprobe {

Session::Session(std::unique_ptr<Tracer> tracer) : tracer_(std::move(tracer)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&& other) noexcept {
  if (this == &other) return *this;
  const Session old(std::exchange(tracer_, std::move(other.tracer_)));
  kept_ = std::move(other.kept_);
  return *this;
}
// A forked child leaves the session alone: it belongs to the parent.
Session::~Session() {
  if (tracer_ && !tracer_->is_here()) static_cast<void>(tracer_.release());
}

namespace {

Error no_callbacks() {
  return Error{.text = "callbacks run in the process that sets them", .help = "attach to getpid()"};
}

}  // namespace

Result<Session> Session::launch(const Options& options, const std::vector<std::string>& argv) {
  if (!options.callbacks.empty()) return no_callbacks();
  auto tracer = EngineSession::launch(with_agent(options), argv);
  if (!tracer) return tracer.error();
  return Session(std::move(*tracer));
}

Result<Session> Session::attach(const Options& options, int pid) {
  const Options wanted = with_agent(options);
  if (!wanted.callbacks.empty() && pid != ::getpid()) return no_callbacks();
  auto tracer = pid == ::getpid() ? SelfSession::begin(wanted) : EngineSession::attach(wanted, pid);
  if (!tracer) return tracer.error();
  return Session(std::move(*tracer));
}

namespace {

// Clocks can count that long from any time.
constexpr std::chrono::milliseconds kNoPatience{0}, kMostPatience = std::chrono::hours(24 * 365);

// "EVENT" or "GROUP/EVENT".
bool is_called(const Event& event, std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? event.name == name
                                         : event.name == name.substr(slash + 1) && event.group == name.substr(0, slash);
}

}  // namespace

int Session::pid() const { return tracer_ ? tracer_->pid() : 0; }

std::optional<Event> Session::next(std::chrono::milliseconds patience) {
  if (!is_here(tracer_)) return std::nullopt;
  if (!kept_.empty()) {
    Event oldest = std::move(kept_.front());
    kept_.pop_front();
    return oldest;
  }
  return tracer_->next(std::clamp(patience, kNoPatience, kMostPatience));
}

std::vector<Event> Session::wait_for(std::string_view event, std::size_t count, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  std::vector<Event> found;
  if (!is_here(tracer_)) return found;
  const auto is_meant = [&](const Event& one) { return is_called(one, event); };
  for (auto at = kept_.begin();
       found.size() < count && (at = std::find_if(at, kept_.end(), is_meant)) != kept_.end();) {
    found.push_back(std::move(*at));
    at = kept_.erase(at);
  }
  const auto deadline = Clock::now() + std::clamp(patience, kNoPatience, kMostPatience);
  while (found.size() < count) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    std::optional<Event> next = tracer_->next(std::max(left, kNoPatience));
    if (!next) break;
    if (is_meant(*next))
      found.push_back(std::move(*next));
    else
      kept_.push_back(std::move(*next));
  }
  return found;
}

std::vector<Event> Session::finish() {
  if (!is_here(tracer_)) return {};
  std::vector<Event> all(std::make_move_iterator(kept_.begin()), std::make_move_iterator(kept_.end()));
  kept_.clear();
  std::vector<Event> rest = tracer_->finish();
  all.insert(all.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
  return all;
}

std::optional<Ending> Session::ending() const {
  if (!is_here(tracer_)) return std::nullopt;
  return tracer_->ending();
}

Status Session::add(const std::string& definition) {
  return is_here(tracer_) ? tracer_->add(definition) : elsewhere(tracer_, "session");
}

Status Session::remove(const std::string& event) {
  return is_here(tracer_) ? tracer_->remove(event) : elsewhere(tracer_, "session");
}

Status Session::disable(const std::string& event) {
  return is_here(tracer_) ? tracer_->switch_events(event, false) : elsewhere(tracer_, "session");
}

Status Session::enable(const std::string& event) {
  return is_here(tracer_) ? tracer_->switch_events(event, true) : elsewhere(tracer_, "session");
}

std::vector<Counts> Session::counts() const {
  if (!is_here(tracer_)) return {};
  return tracer_->counts();
}

Status Session::reset(const std::string& event) {
  return is_here(tracer_) ? tracer_->reset(event) : elsewhere(tracer_, "session");
}

std::vector<CallbackCounts> Session::callback_counts() const {
  return is_here(tracer_) ? tracer_->callback_counts() : std::vector<CallbackCounts>();
}

std::vector<EventInfo> Session::info(const std::string& event) const {
  return is_here(tracer_) ? tracer_->info(event) : std::vector<EventInfo>();
}

void Session::stop() {
  if (is_here(tracer_)) tracer_->stop();
}

}  // namespace libuprobe
