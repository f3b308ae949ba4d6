// SPDX-License-Identifier: MIT
// A word in shared memory that a thread of its own changes while the tool lives, even if all other threads are busy; and one that the
// kernel changes when the tool dies.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <latch>
#include <mutex>
#include <thread>

namespace uprobe::control {

class Heartbeat {
 public:
  // Returns after the words say that the tool lives. They must outlive the heartbeat. `life` (AreaHeader::tool_life) gets the number of
  // the thread, and shared::kLifeEnded if the process dies before this object does; 0 where the kernel cannot do that, and when this
  // object has ended.
  explicit Heartbeat(std::uint32_t& word, std::uint32_t* life = nullptr);
  ~Heartbeat();
  // Changes the first word no more: no thread is to wait for the tool. The other word still says that the tool lives.
  void stop_beating();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void live();
  void beat();

  std::uint32_t& word_;
  std::uint32_t* life_;
  std::mutex lock_;
  std::condition_variable changed_;
  bool beats_ = true, ends_now_ = false;
  std::latch begun_{1};
  std::thread thread_;
};

}  // namespace uprobe::control
