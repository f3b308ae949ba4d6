// SPDX-License-Identifier: MIT
#include "library/uprobe/recorder.h"

#include <utility>

#include "library/installed.h"
#include "library/self_session.h"
#include "library/tracer.h"

namespace libuprobe {
namespace {

constexpr const char* kWhat = "recorder";

}  // namespace

Recorder::Recorder(std::unique_ptr<Tracer> tracer) : tracer_(std::move(tracer)) {}
Recorder::Recorder(Recorder&&) noexcept = default;
Recorder& Recorder::operator=(Recorder&& other) noexcept {
  if (this == &other) return *this;
  const Recorder old(std::exchange(tracer_, std::move(other.tracer_)));
  return *this;
}
// A forked child leaves it alone: it belongs to the parent.
Recorder::~Recorder() {
  if (tracer_ && !tracer_->is_here()) static_cast<void>(tracer_.release());
}

Result<Recorder> Recorder::start(const Options& options, const std::string& file, std::uint64_t bytes) {
  auto tracer = SelfSession::begin(with_agent(options));
  if (!tracer) return tracer.error();
  if (const Status kept = (*tracer)->keep(file, bytes); !kept) return kept.error();
  return Recorder(std::move(*tracer));
}

Result<std::uint64_t> Recorder::dump(const std::string& file) {
  return is_here(tracer_) ? tracer_->dump(file) : elsewhere(tracer_, kWhat);
}

Status Recorder::add(const std::string& definition) {
  return is_here(tracer_) ? tracer_->add(definition) : elsewhere(tracer_, kWhat);
}

Status Recorder::remove(const std::string& event) {
  return is_here(tracer_) ? tracer_->remove(event) : elsewhere(tracer_, kWhat);
}

Status Recorder::disable(const std::string& event) {
  return is_here(tracer_) ? tracer_->switch_events(event, false) : elsewhere(tracer_, kWhat);
}

Status Recorder::enable(const std::string& event) {
  return is_here(tracer_) ? tracer_->switch_events(event, true) : elsewhere(tracer_, kWhat);
}

std::vector<Counts> Recorder::counts() const { return is_here(tracer_) ? tracer_->counts() : std::vector<Counts>(); }

void Recorder::stop() {
  if (is_here(tracer_)) tracer_->stop();
}

}  // namespace libuprobe
