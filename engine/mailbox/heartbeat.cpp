// SPDX-License-Identifier: MIT
#include "engine/mailbox/heartbeat.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "engine/base/signal_masked_thread.h"
#include "engine/shared/session_area.h"

namespace uprobe::control {
namespace {

static_assert(shared::kLifeEnded == FUTEX_OWNER_DIED);

// A word as the calling thread's only robust futex: when the thread dies with it, the kernel sets kLifeEnded there. libc's own list, which
// such a thread does not use, is put back at the end.
class MarkOfLife {
 public:
  explicit MarkOfLife(std::uint32_t& word) : word_(word) {
    list_.list.next = &list_.list;
    list_.list_op_pending = reinterpret_cast<robust_list*>(&word);
    if (::syscall(SYS_get_robust_list, 0, &before_, &before_bytes_) != 0) return;
    if (::syscall(SYS_set_robust_list, &list_, sizeof list_) != 0) return;
    is_set_ = true;
    __atomic_store_n(&word_, static_cast<std::uint32_t>(::gettid()), __ATOMIC_RELEASE);
  }
  MarkOfLife(const MarkOfLife&) = delete;
  MarkOfLife& operator=(const MarkOfLife&) = delete;
  ~MarkOfLife() {
    if (!is_set_) return;
    __atomic_store_n(&word_, 0, __ATOMIC_RELEASE);
    ::syscall(SYS_set_robust_list, before_, before_bytes_);
  }

 private:
  std::uint32_t& word_;
  robust_list_head list_{};
  robust_list_head* before_ = nullptr;
  std::size_t before_bytes_ = 0;
  bool is_set_ = false;
};

}  // namespace

Heartbeat::Heartbeat(std::uint32_t& word, std::uint32_t* life)
    : word_(word), life_(life), thread_(start_signal_masked_thread([this] { live(); })) {
  begun_.wait();
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(lock_);
    beats_ = false, ends_now_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Heartbeat::stop_beating() {
  {
    const std::lock_guard lock(lock_);
    beats_ = false;
  }
  changed_.notify_all();
}

void Heartbeat::live() {
  if (life_ == nullptr) return beat();
  const MarkOfLife mark(*life_);
  beat();
}

void Heartbeat::beat() {
  const auto tick = [this] { __atomic_fetch_add(&word_, 1, __ATOMIC_RELAXED); };
  tick();
  begun_.count_down();
  std::unique_lock lock(lock_);
  while (!changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return !beats_; })) tick();
  changed_.wait(lock, [this] { return ends_now_; });
}

}  // namespace uprobe::control
