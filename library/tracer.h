// SPDX-License-Identifier: MIT
// The implementation of a Session: in this process (engine_session.h) or, to trace this process itself, in another one
// (self_session.h). The functions are those of uprobe/session.h.
#pragma once

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
  virtual void stop() = 0;

 private:
  const pid_t maker_;
};

}  // namespace libuprobe
