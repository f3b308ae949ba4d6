// SPDX-License-Identifier: MIT
#include "engine/session/end_watch.h"

#include <poll.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "engine/process/program_end.h"

namespace uprobe {

using std::chrono::steady_clock;

Status EndWatch::begin(const RunOptions& options) {
  if (!options.until_last) return ok();
  const auto area = recording_.inode();
  if (!area) return area.error();
  survivors_.emplace(*area, [this] { return targets_.mail().is_following(); });
  first_ended_ = options.first_ended;
  return ok();
}

bool EndWatch::begin_flush() {
  is_flushing_ = is_flushing_ || (targets_.is_daemonized() && targets_.mail().begin_flush());
  return is_flushing_;
}

void EndWatch::end_flush() {
  if (std::exchange(is_flushing_, false)) targets_.mail().end_flush();
}

// Whether the program waits at its end for its records to be printed. Where it does not, or the session stays for other
// processes, the flush round ends: any process of the session can ask for one. The checks take a small share of the time.
bool EndWatch::is_program_ending() {
  constexpr pid_t kLastOfAll = 1;  // when it ends, all processes of its namespace end
  constexpr int kShare = 5;
  const auto begun = steady_clock::now();
  if (!is_flushing_ || begun < next_look_) return false;
  const pid_t child = targets_.child();
  if (recording_.is_on() && (!survivors_ || child == kLastOfAll) && control::waits_at_its_end(child)) return true;
  next_look_ = begun + kShare * (steady_clock::now() - begun);
  end_flush();
  return false;
}

// Also returns when the program asks for a flush: then it has not ended.
bool EndWatch::has_program_ended(std::chrono::microseconds limit) const {
  if (!targets_.is_daemonized() || !recording_.is_on()) return control::has_ended(targets_.pidfd(), limit);
  pollfd both[] = {{.fd = targets_.pidfd(), .events = POLLIN, .revents = 0},
                   {.fd = targets_.mail().flush_wanted(), .events = POLLIN, .revents = 0}};
  const timespec timeout{.tv_sec = limit.count() / 1'000'000, .tv_nsec = limit.count() % 1'000'000 * 1000};
  ::ppoll(both, std::size(both), &timeout, nullptr);
  return both[0].revents != 0;
}

void EndWatch::forget_ended() {
  const auto none = std::chrono::microseconds(0);
  const auto ended = std::stable_partition(processes_.begin(), processes_.end(), [none](const Attached& process) {
    return !control::has_ended(process.handle.get(), none);
  });
  const bool do_others_go_on = ended != processes_.begin();
  for (auto process = ended; process != processes_.end(); ++process)
    if (tell_ && do_others_go_on) tell_("process " + std::to_string(process->pid) + " ended");
  processes_.erase(ended, processes_.end());
}

bool EndWatch::have_attached_ended(std::chrono::microseconds limit) {
  forget_ended();
  if (!processes_.empty() && control::has_ended(processes_.back().handle.get(), limit)) forget_ended();
  return processes_.empty();
}

bool EndWatch::await() {
  if (is_program_ending()) return true;
  const auto wait = recording_.is_on() ? recording_.next_poll() : std::chrono::microseconds(100'000);
  if (expects_more_) return std::this_thread::sleep_for(wait), false;
  if (!(targets_.attaches() ? have_attached_ended(wait) : has_program_ended(wait))) return false;
  if (!survivors_ || !recording_.is_on() || survivors_->have_ended(wait)) return true;
  if (first_ended_ && survivors_->count() != 0) std::exchange(first_ended_, nullptr)(survivors_->count());
  return false;
}

}  // namespace uprobe
