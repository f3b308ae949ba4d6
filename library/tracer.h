// SPDX-License-Identifier: MIT
// The implementation of a Session: in this process (engine_session.h) or, to trace this process itself, in another one
// (self_session.h). The functions are those of uprobe/session.h.
#pragma once

#include <memory>
#include <string>

#include "library/system_call.h"
#include "library/uprobe/session.h"

namespace libuprobe {

class Tracer {
 public:
  Tracer() : maker_(current_process()) {}
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  virtual ~Tracer() = default;

  // False in a forked child of the process that made it: the session's threads are not there, so nothing works.
  bool is_here() const { return current_process() == maker_; }

  virtual int pid() const = 0;
  // `patience` is never negative, and small enough for clocks to count.
  virtual std::optional<Event> next(std::chrono::milliseconds patience) = 0;
  virtual std::vector<Event> finish() = 0;
  virtual std::optional<Ending> ending() = 0;
  virtual Status add(const std::string& definition) = 0;
  virtual Status remove(const std::string& event) = 0;
  virtual Status switch_events(const std::string& event, bool on) = 0;
  virtual std::vector<Counts> counts() = 0;
  virtual Status reset(const std::string& event) = 0;
  virtual std::vector<EventInfo> info(const std::string& event) = 0;
  virtual std::vector<CallbackCounts> callback_counts() { return {}; }
  virtual void stop() = 0;
  // A flight recording in place of events (uprobe/recorder.h). dump(): how many hits were written.
  virtual Status keep(const std::string&, std::uint64_t) { return no_flight(); }
  virtual Result<std::uint64_t> dump(const std::string&) { return no_flight(); }

 private:
  static Error no_flight() { return Error{.text = "a process keeps a flight recording of itself alone"}; }

  const pid_t maker_;
};

// False where it was moved away, too.
inline bool is_here(const std::unique_ptr<Tracer>& tracer) { return tracer && tracer->is_here(); }

// Why not; `what`: "session".
inline Error elsewhere(const std::unique_ptr<Tracer>& tracer, const std::string& what) {
  if (!tracer) return Error{.text = "the " + what + " has been moved away"};
  return Error{.text = "the " + what + " belongs to the process that forked this one"};
}

}  // namespace libuprobe
