// SPDX-License-Identifier: MIT
// Records on their way from the thread that reads them to whoever prints them, where that one must not keep the reader waiting: a
// client's (peer_server.h), and those of whoever began the session while there are clients. Bounded, each and all together; what is beyond is counted.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/ipc/peer_protocol.h"

namespace uprobe {

class RecordQueue {
 public:
  RecordQueue() = default;
  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;
  ~RecordQueue();

  // Never waits.
  void take(const ClientRecord& record);
  bool is_empty() const;
  // All that is there, as whole messages, in place of what `bytes` held.
  void swap_out(std::string& bytes);
  // How many were lost of probe `index`.
  std::uint64_t lost(std::size_t index) const;

  // For a reader that has nothing else to wait for: the thread that takes says when there is something, and when no more comes.
  void tell();
  void close();
  // False: no more comes.
  bool wait(std::chrono::milliseconds limit);

 private:
  mutable std::mutex lock_;
  std::condition_variable told_;
  std::string waiting_;
  std::size_t handed_out_ = 0;  // what the last swap_out() took: it is taken as in use until the next
  std::vector<std::uint64_t> lost_;
  bool is_closed_ = false;
};

}  // namespace uprobe
