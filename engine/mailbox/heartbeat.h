// SPDX-License-Identifier: MIT
// A word in shared memory that moves while the tool lives, whatever its other threads are busy with.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace uprobe::control {

class Heartbeat {
 public:
  // `word` outlives the heartbeat.
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
