// SPDX-License-Identifier: MIT
#include "engine/mailbox/heartbeat.h"

#include <chrono>

#include "engine/base/signal_masked_thread.h"

namespace uprobe::control {

Heartbeat::Heartbeat(std::uint32_t& word) : word_(word), thread_(start_signal_masked_thread([this] { beat(); })) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(lock_);
    stop_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void Heartbeat::beat() {
  std::unique_lock lock(lock_);
  do {
    __atomic_fetch_add(&word_, 1, __ATOMIC_RELAXED);
  } while (!ends_.wait_for(lock, std::chrono::milliseconds(50), [this] { return stop_; }));
}

}  // namespace uprobe::control
