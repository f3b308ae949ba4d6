// SPDX-License-Identifier: MIT
#include "engine/target/exit_reaper.h"

#include <chrono>

#include "engine/base/signal_masked_thread.h"
#include "engine/target/thread_change.h"

namespace uprobe::target {
namespace {

using namespace std::chrono_literals;

// A call that waits for longer waits for a lock.
constexpr auto kPatience = 20ms;

}  // namespace

ExitReaper::ExitReaper(const std::vector<pid_t>& tracees) : tracees_(tracees) {
  thread_ = start_signal_masked_thread([this] { work(); });
}

ExitReaper::~ExitReaper() {
  {
    const std::lock_guard lock(lock_);
    has_ended_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ExitReaper::set_awaited(bool is_awaited) {
  const std::lock_guard lock(lock_);
  is_awaited_ = is_awaited;
}

void ExitReaper::work() {
  std::unique_lock lock(lock_);
  for (bool was_awaited = false; !has_ended_; was_awaited = is_awaited_) {
    changed_.wait_for(lock, kPatience);
    if (!is_awaited_ || !was_awaited) continue;
    for (const pid_t tid : tracees_) take_end(tid);
  }
}

}  // namespace uprobe::target
