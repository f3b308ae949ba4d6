// SPDX-License-Identifier: MIT
// Attaches to processes while a session runs: those with a given name or mapped file, at the session's beginning and, if the
// user wants to wait, whenever one starts. Each process is handled by itself: one that cannot be attached is reported and
// skipped.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/attach/process_finder.h"
#include "engine/base/signal_masked_thread.h"
#include "engine/service/mail_service.h"
#include "engine/types.h"

namespace uprobe {

class LateAttacher {
 public:
  // All arguments must outlive it. `session`: the inode of the session's area. `tell` may be called from another thread.
  // `trusts_filters`: as for check_attachable().
  LateAttacher(control::ProcessFinder finder, ino_t session, control::MailService& service, bool trusts_filters,
               Tell tell)
      : finder_(std::move(finder)),
        session_(session),
        service_(service),
        trusts_filters_(trusts_filters),
        tell_(std::move(tell)) {}
  ~LateAttacher() { stop(); }
  LateAttacher(const LateAttacher&) = delete;
  LateAttacher& operator=(const LateAttacher&) = delete;

  // Attaches to all that exist now. A process that cannot be attached for the moment is retried for a while.
  void take_present(const GivenUp& given_up);
  // Attaches to later ones, on a thread of its own, until stop().
  void watch();
  void stop();

  // After stop(), or before watch(): how many processes it brought into the session; pidfds of those that take_present()
  // brought; how many it found; notes on what was not reported at once.
  std::size_t taken() const { return taken_; }
  std::vector<std::pair<pid_t, Fd>> take_handles() { return std::move(handles_); }
  std::size_t found() const { return found_; }
  std::vector<std::string> notes() const;

 private:
  // True: some are to be retried.
  bool step();
  bool settle(const control::Candidate& candidate, const Status& outcome);
  Status try_to_take(const control::Candidate& candidate);
  Status take(const control::Candidate& candidate);
  void tell(const std::string& line);
  void tell_refusal(const control::Candidate& candidate, const Error& error);
  void tell_closed();

  control::ProcessFinder finder_;
  const ino_t session_;
  control::MailService& service_;
  const bool trusts_filters_;
  const Tell tell_;
  std::vector<std::pair<pid_t, Fd>> handles_;
  std::map<std::string, std::size_t> refusals_;  // count per reason
  std::size_t taken_ = 0, found_ = 0, gone_ = 0;
  std::size_t lines_left_ = 0, untold_ = 0;  // lines that may be printed now; lines that were suppressed
  std::chrono::steady_clock::time_point earned_until_;
  bool is_watching_ = false;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace uprobe
