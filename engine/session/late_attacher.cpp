// SPDX-License-Identifier: MIT
#include "engine/session/late_attacher.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "engine/attach/attach.h"
#include "engine/base/exhaustion.h"
#include "engine/target/attachable.h"
#include "engine/target/process_stat.h"

namespace uprobe {
namespace {

using control::Candidate;
using namespace std::chrono_literals;

constexpr auto kPace = 40ms;  // documented in the help and in README
constexpr auto kAgain = 10ms;
constexpr int kMostTries = 25;
constexpr std::size_t kMostTold = 10;  // per reason
constexpr std::size_t kMostReasons = 100;
// This many lines at once, and afterwards one line per kLinePace.
constexpr std::size_t kMostLines = 100;
constexpr auto kLinePace = 50ms;

// Errors that may pass: another tool is at work in the process, or the process begins, ends or calls execve.
bool may_pass(const Error& error) { return error.retry == Retry::soon || error.err == EPERM || error.err == EACCES; }

bool is_of_end(const Error& error, pid_t pid) {
  return error.code == Code::killed || error.err == ESRCH || target::has_ended(pid);
}

std::string called(const Candidate& candidate) {
  return "process " + std::to_string(candidate.pid) + " (" + candidate.name + ")";
}

}  // namespace

// What a thread holds by ptrace is released when the thread ends, whatever has failed (kernel/ptrace.c, exit_ptrace). So each
// process is attached by a thread of its own.
Status LateAttacher::try_to_take(const Candidate& candidate) {
  Status taken = ok();
  std::thread thread = start_signal_masked_thread(
      [&] { taken = catch_resource_exhaustion([&] { return take(candidate); }); }, {SIGCHLD});
  thread.join();
  return taken;
}

Status LateAttacher::take(const Candidate& candidate) {
  Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, candidate.pid, 0)));
  if (!handle) return system_error("pidfd_open", errno);
  RETURN_IF_ERROR(control::make_free(candidate.pid, session_));
  RETURN_IF_ERROR(target::check_attachable(candidate.pid, trusts_filters_));
  service_.search_ahead(candidate.pid);
  const auto is_wanted = [&] { return finder_.is_still(candidate); };
  Status taken = service_.alone([&] { return service_.take_in(candidate.pid, trusts_filters_, is_wanted); });
  if (taken && !is_watching_) handles_.emplace_back(candidate.pid, std::move(handle));
  return taken;
}

// Limits the lines: programs that start all the time must not fill the user's screen.
void LateAttacher::tell(const std::string& line) {
  const auto now = std::chrono::steady_clock::now();
  const auto earned = (now - earned_until_) / kLinePace;
  earned_until_ += earned * kLinePace;
  lines_left_ = std::min(kMostLines, lines_left_ + static_cast<std::size_t>(earned));
  if (lines_left_ == 0) return void(++untold_);
  --lines_left_;
  tell_(line);
}

void LateAttacher::tell_refusal(const Candidate& candidate, const Error& error) {
  const bool is_forbidden = error.err == EPERM || error.err == EACCES;
  const Error told = is_forbidden ? target::explain_refusal(candidate.pid, error.err) : error;
  if (refusals_.size() >= kMostReasons && !refusals_.contains(told.text)) return void(++untold_);
  if (++refusals_[told.text] > kMostTold) return;
  tell(called(candidate) + (told.where.empty() || is_forbidden ? " " : ": ") + told.text + ": it is skipped");
}

// True: the process is to be retried.
bool LateAttacher::settle(const Candidate& candidate, const Status& outcome) {
  const bool has_ended = !outcome && is_of_end(outcome.error(), candidate.pid);
  if (!outcome && !has_ended && may_pass(outcome.error()) && candidate.offers < kMostTries) return true;
  finder_.settle(candidate);
  if (has_ended)
    ++gone_;
  else if (outcome || outcome.error().retry == Retry::needless)
    ++taken_;
  else
    tell_refusal(candidate, outcome.error());
  if (outcome) tell("attached to " + called(candidate));
  return false;
}

bool LateAttacher::step() {
  bool again = false;
  for (const Candidate& candidate : finder_.look()) {
    if (stop_) return false;
    if (candidate.offers == 1) ++found_;
    again = settle(candidate, try_to_take(candidate)) || again;
  }
  return again;
}

void LateAttacher::tell_closed() {
  const std::size_t closed = finder_.closed_ones();
  if (closed != 0)
    tell_(std::to_string(closed) + (closed == 1 ? " process does not show this user its mappings: it is skipped"
                                                : " processes do not show this user their mappings: they are skipped"));
}

void LateAttacher::take_present(const GivenUp& given_up) {
  while (step() && !given_up()) std::this_thread::sleep_for(kAgain);
  tell_closed();
}

void LateAttacher::watch() {
  is_watching_ = true;
  thread_ = start_signal_masked_thread(
      [this] {
        while (!stop_) {
          static_cast<void>(catch_resource_exhaustion([this] { return step(), ok(); }));
          std::this_thread::sleep_for(kPace);
        }
      },
      {SIGCHLD});
}

void LateAttacher::stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

std::vector<std::string> LateAttacher::notes() const {
  std::vector<std::string> notes;
  for (const auto& [reason, times] : refusals_)
    if (times > kMostTold) notes.push_back(std::to_string(times - kMostTold) + " more processes skipped: " + reason);
  if (untold_ != 0) notes.push_back(std::to_string(untold_) + " further messages about processes were not shown");
  if (gone_ != 0)
    notes.push_back(std::to_string(gone_) + (gone_ == 1 ? " process had ended" : " processes had ended") +
                    " before the tool could attach");
  return notes;
}

}  // namespace uprobe
