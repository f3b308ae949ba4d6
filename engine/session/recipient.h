// SPDX-License-Identifier: MIT
// The consumer of the records of the session's own events, and their way to it. One thread at a time uses a recipient: the one
// that reads the rings or, while the session has clients, the one of run().
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/ipc/course_relay.h"
#include "engine/ipc/record_queue.h"
#include "engine/output/symbols.h"
#include "engine/resolve/probe_builder.h"
#include "engine/trace/event_record.h"
#include "engine/trace/record_run.h"
#include "engine/types.h"

namespace uprobe {

class ProcessWatch;

class Recipient {
 public:
  virtual ~Recipient() = default;
  // There may be further events. The list of probes does not change during the call.
  virtual void learn_events() {}
  virtual void take(const trace::EventRecord& record, std::string_view task) = 0;
  // Whether it takes the records of each ring in runs.
  virtual bool takes_runs() const { return false; }
  virtual void take_run(const trace::RecordRun&) {}
  // Whether it wants the course of the session (course.h), which costs a look at each process.
  virtual bool wants_course() const { return false; }
  virtual bool wants_mappings() const { return false; }
  virtual void take_course(const CourseRelay::Item&) {}
  virtual void end_batch() {}
  // The session has come to its end. `summary` is called only where it is needed.
  virtual void end(const std::function<Summary()>& /*summary*/) {}
  virtual bool is_full() const { return false; }
  // Where the user has not asked for that, why; else empty.
  virtual std::string_view why_full() const { return {}; }
  virtual bool is_broken() const { return false; }  // its reader is gone
  // How many records it has taken that could not be written, as far as it knows.
  virtual std::uint64_t unwritten() const { return 0; }
  // Where it is full: how many records of each event it has taken. Later hits are none of its user's.
  virtual std::vector<std::uint64_t> taken() const { return {}; }
};

// Whether the session's own user wants to leave: the recipient is full, or its reader is gone, or the user's limits are reached.
class LeaveWish {
 public:
  // Both must outlive it. The time begins now. `minds_broken`: whether it is a reason to leave that the recipient is broken.
  LeaveWish(const RunOptions& options, const Recipient& recipient, bool minds_broken)
      : options_(options), recipient_(recipient), minds_broken_(minds_broken) {}
  bool is_there() const;

 private:
  bool is_over_time() const;

  const RunOptions& options_;
  const Recipient& recipient_;
  const bool minds_broken_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

// Leads the session's own records to its recipient: at once or, while a thread of its own reads the rings, through a queue, so
// that slow output delays no client. The thread that reads calls all of it, except where stated.
class OwnRecords {
 public:
  // Null: there is no recipient.
  void lead_to(Recipient* recipient) { recipient_ = recipient; }
  // From now on the thread of run() takes them from the queue. end_queue() undoes that, as no thread could be made.
  void begin_queue();
  void end_queue();
  // From any thread: later records are wanted no more.
  void discard() { is_discarding_ = true; }

  void learn_events();
  void take(std::uint32_t event, const trace::EventRecord& record, std::string_view task);
  bool takes_runs() const { return recipient_ != nullptr && recipient_->takes_runs(); }
  void take_run(const trace::RecordRun& run);
  void end_batch();
  // It learns of each record before that is handed on. Null: none does.
  void watch(ProcessWatch* watch) { watch_ = watch; }
  void tell_course(const CourseRelay::Item& item);
  std::uint64_t dropped_course() const { return relay_ ? relay_->dropped() : 0; }
  void tell();
  // How many of an event's records the queue has lost.
  std::uint64_t lost(std::size_t event) const { return queue_ ? queue_->lost(event) : 0; }
  // Of begin_queue().
  RecordQueue& queue() { return *queue_; }
  CourseRelay& relay() { return *relay_; }

 private:
  Recipient* recipient_ = nullptr;
  Recipient* passed_over_ = nullptr;  // while there is a queue
  std::optional<RecordQueue> queue_;
  std::optional<CourseRelay> relay_;  // likewise
  ProcessWatch* watch_ = nullptr;
  std::atomic<bool> is_discarding_{false};
};

// Makes text of the records in the format of `options`, with `string_limit` characters of a string. All arguments must outlive it;
// `probes` may grow, by event. No `symbols`: no event shows names. `marks_changes`: triggers may change the program.
std::unique_ptr<Recipient> make_printer(const std::vector<Probe>& probes, const RunOptions& options,
                                        const Output& output, std::uint32_t string_limit, format::Symbols* symbols,
                                        bool marks_changes);
// Passes the records on with their layouts. The same holds for its arguments.
std::unique_ptr<Recipient> make_forwarder(const std::vector<Probe>& probes, const RecordSink& sink);

}  // namespace uprobe
