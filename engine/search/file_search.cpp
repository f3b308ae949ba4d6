// SPDX-License-Identifier: MIT
#include "engine/search/file_search.h"

#include <algorithm>
#include <utility>

#include "engine/base/exhaustion.h"
#include "engine/base/signal_masked_thread.h"

namespace uprobe::control {

bool FileSearch::is_done(const Jobs& jobs) {
  return std::ranges::all_of(jobs, [](const auto& job) { return job->is_done.load(); });
}

FileSearch::FileSearch(std::function<void()> tell)
    : tell_(std::move(tell)), thread_(start_signal_masked_thread([this] { loop(); })) {}

FileSearch::~FileSearch() {
  {
    const std::lock_guard lock(lock_);
    stop_ = true;
  }
  is_wanted_.notify_all();
  thread_.join();
}

bool FileSearch::add(const Owner& owner, const std::shared_ptr<Job>& job) {
  constexpr std::size_t kMostWaiting = 1024;
  {
    const std::lock_guard lock(lock_);
    auto& queue = queues_[owner];
    if (queue.size() >= kMostWaiting) return false;
    queue.push_back(job);
  }
  is_wanted_.notify_all();
  return true;
}

// The next owner's after the last one's.
std::shared_ptr<FileSearch::Job> FileSearch::next(std::unique_lock<std::mutex>& lock) {
  is_wanted_.wait(lock, [this] { return stop_ || !queues_.empty(); });
  if (stop_) return nullptr;
  auto turn = queues_.upper_bound(last_);
  if (turn == queues_.end()) turn = queues_.begin();
  last_ = turn->first;
  auto job = turn->second.front();
  turn->second.pop_front();
  if (turn->second.empty()) queues_.erase(turn);
  return job;
}

void FileSearch::loop() {
  std::unique_lock lock(lock_);
  while (const auto job = next(lock)) {
    if (job->is_taken.exchange(true)) continue;
    lock.unlock();
    const Status looked = catch_resource_exhaustion([&] { return job->found = look_into(job->order), ok(); });
    if (!looked) job->found = {.file = nullptr, .sites = {}, .why = job->order.shown + ": " + looked.error().text};
    job->is_done = true;
    tell_();
    lock.lock();
  }
}

}  // namespace uprobe::control
