// SPDX-License-Identifier: MIT
#include "engine/ipc/record_queue.h"

#include <atomic>

namespace uprobe {
namespace {

constexpr std::size_t kMostWaiting = std::size_t{32} << 20;
constexpr std::size_t kMostTogether = std::size_t{96} << 20;

std::atomic<std::size_t> g_together{
    0};  // bytes in all queues of this process, and with the threads that print or send them

}  // namespace

void RecordQueue::take(const ClientRecord& record) {
  const std::lock_guard lock(lock_);
  const std::size_t size = record_bytes(record);
  if (waiting_.size() + size <= kMostWaiting && g_together + size <= kMostTogether) {
    g_together += size;
    return append_record(waiting_, record);
  }
  if (lost_.size() <= record.index) lost_.resize(record.index + 1);
  ++lost_[record.index];
}

bool RecordQueue::is_empty() const {
  const std::lock_guard lock(lock_);
  return waiting_.empty();
}

void RecordQueue::swap_out(std::string& bytes) {
  bytes.clear();
  const std::lock_guard lock(lock_);
  g_together -= handed_out_;
  handed_out_ = waiting_.size();
  bytes.swap(waiting_);
}

RecordQueue::~RecordQueue() { g_together -= waiting_.size() + handed_out_; }

std::uint64_t RecordQueue::lost(std::size_t index) const {
  const std::lock_guard lock(lock_);
  return index < lost_.size() ? lost_[index] : 0;
}

void RecordQueue::tell() { told_.notify_all(); }

void RecordQueue::close() {
  {
    const std::lock_guard lock(lock_);
    is_closed_ = true;
  }
  told_.notify_all();
}

bool RecordQueue::wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(lock_);
  told_.wait_for(lock, limit, [this] { return is_closed_ || !waiting_.empty(); });
  return !is_closed_ || !waiting_.empty();
}

}  // namespace uprobe
