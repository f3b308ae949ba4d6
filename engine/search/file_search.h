// SPDX-License-Identifier: MIT
// Looks into large files on a thread of its own, so that no process waits while another one's files are read. Processes of
// different rights take turns, file by file.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/search/file_look.h"

namespace uprobe::control {

class FileSearch {
 public:
  struct Job {
    explicit Job(LookOrder its_order) : order(std::move(its_order)) {}
    const LookOrder order;
    FileLook found;  // once it is done
    std::atomic<bool> is_taken{false}, is_done{false};
  };
  using Jobs = std::vector<std::shared_ptr<Job>>;
  // Whose turn it is: the user, capabilities and user namespace of the process that has mapped the file.
  using Owner = std::array<std::uint64_t, 3>;
  static bool is_done(const Jobs& jobs);

  // `tell` is called by the thread after each job.
  explicit FileSearch(std::function<void()> tell);
  ~FileSearch();
  FileSearch(const FileSearch&) = delete;
  FileSearch& operator=(const FileSearch&) = delete;

  // False where too many of that owner's jobs wait. A job may wait in several owners' queues.
  bool add(const Owner& owner, const std::shared_ptr<Job>& job);

 private:
  void loop();
  std::shared_ptr<Job> next(std::unique_lock<std::mutex>& lock);

  const std::function<void()> tell_;
  std::mutex lock_;
  std::condition_variable is_wanted_;
  std::map<Owner, std::deque<std::shared_ptr<Job>>> queues_;  // guarded, as are the next two
  Owner last_{};                                              // whose turn it was
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace uprobe::control
