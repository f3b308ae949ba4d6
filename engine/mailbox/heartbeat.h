// A word in shared memory that moves while the tool lives, whatever its other threads are busy with.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace uprobe::control {

class Pulse {
 public:
  // `word` outlives the pulse.
  explicit Pulse(std::uint32_t& word);
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

 private:
  void beat();

  std::uint32_t& word_;
  std::mutex lock_;
  std::condition_variable ends_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace uprobe::control
