// SPDX-License-Identifier: MIT
#include "engine/session/reader_thread.h"

#include "engine/base/exhaustion.h"
#include "engine/base/signal_masked_thread.h"

namespace uprobe {

// If no thread can be made, the next turn tries again.
void ReaderThread::start() {
  own_.begin_queue();
  const Status begun = catch_resource_exhaustion([&] {
    thread_ = start_signal_masked_thread([this] { ending_ = read_(); });
    return ok();
  });
  if (!begun) own_.end_queue();
}

bool ReaderThread::has_begun() {
  if (is_wanted_ && !thread_.joinable()) start();
  return thread_.joinable();
}

void ReaderThread::ask() {
  is_wanted_ = true;
  if (const std::unique_lock turn(reading_, std::try_to_lock); turn) has_begun();
}

Ending ReaderThread::join() {
  if (thread_.joinable()) thread_.join();
  return ending_;
}

bool ReaderThread::settle(std::chrono::milliseconds patience) {
  std::unique_lock lock(settling_);
  const std::uint64_t mine = ++wanted_;
  return settled_.wait_for(lock, patience, [&] { return is_over_ || done_ >= mine; });
}

void ReaderThread::serve_settling(const std::function<void()>& hand_on) {
  std::uint64_t wanted = 0;
  {
    const std::lock_guard lock(settling_);
    wanted = wanted_;
    if (wanted == done_) return;
  }
  hand_on();
  {
    const std::lock_guard lock(settling_);
    done_ = wanted;
  }
  settled_.notify_all();
}

void ReaderThread::end_settling() {
  {
    const std::lock_guard lock(settling_);
    is_over_ = true;
  }
  settled_.notify_all();
}

}  // namespace uprobe
