// SPDX-License-Identifier: MIT
// A word in shared memory that a thread of its own changes while the tool lives, even if all other threads are busy.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace uprobe::control {

class Heartbeat {
 public:
  // `word` must outlive the heartbeat.
  explicit Heartbeat(std::uint32_t& word);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void beat();

  std::uint32_t& word_;
  std::mutex lock_;
  std::condition_variable ends_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace uprobe::control
