// SPDX-License-Identifier: MIT
// Watches for the end of a session's processes: of the launched program; of all processes that were attached to; or, where the
// session stays longer, of the last process that still has it.
//
// Also the flush rounds of a program that is not the tool's child: at its end it waits until its trace is written, so while such
// a round lasts the session treats the program as ended.
//
// Threads: the one that reads (reader_thread.h), and before run() the one that attaches.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/process/survivors.h"
#include "engine/session/recording.h"
#include "engine/session/targets.h"

namespace uprobe {

class EndWatch {
 public:
  // Both must outlive it.
  EndWatch(Targets& targets, Recording& recording) : targets_(targets), recording_(recording) {}
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  // Attached processes and their pidfds.
  void add(pid_t pid, Fd process) { processes_.push_back({pid, std::move(process)}); }
  // `tell` gets a line for each that ends while others go on.
  void tell_ends(std::function<void(const std::string&)> tell) { tell_ = std::move(tell); }
  void forget() { processes_.clear(); }
  // Further processes may join the session at any time: it never ends of itself.
  void expect_more() { expects_more_ = true; }
  Status begin(const RunOptions& options);

  // Whether all have ended. Waits until it is time to read again.
  bool await();

  // Whether a flush round is in progress now.
  bool begin_flush();
  void end_flush();
  bool is_flushing() const { return is_flushing_; }

 private:
  bool is_program_ending();
  bool has_program_ended(std::chrono::microseconds limit) const;
  bool have_attached_ended(std::chrono::microseconds limit);
  void forget_ended();

  Targets& targets_;
  Recording& recording_;
  struct Attached {
    pid_t pid;
    Fd handle;
  };
  std::vector<Attached> processes_;
  std::function<void(const std::string&)> tell_;
  bool expects_more_ = false;
  // Where the session stays until the last process has ended. `first_ended_`: see RunOptions; empty after it was called.
  std::optional<control::Survivors> survivors_;
  std::function<void(std::size_t others)> first_ended_;
  bool is_flushing_ = false;
  std::chrono::steady_clock::time_point next_look_{};  // when to check again whether the program waits
};

}  // namespace uprobe
