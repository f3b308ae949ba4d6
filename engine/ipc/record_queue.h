// SPDX-License-Identifier: MIT
// A queue of records between the thread that reads them and a thread that prints or sends them at its own speed: one for each
// client tool (peer_server.h), and one for the owner tool's own output while it has clients. Each queue is bounded, and so is
// the sum of all queues; records beyond a bound are counted as lost.
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

  // Adds a record. Never waits.
  void take(const ClientRecord& record);
  bool is_empty() const;
  // Replaces `bytes` by all queued records, as whole messages.
  void swap_out(std::string& bytes);
  // How many records of probe `index` were lost.
  std::uint64_t lost(std::size_t index) const;

  // For a consumer that waits for nothing else: the reader tells it that records are there, and that no more will come.
  void tell();
  void close();
  // False: no more will come.
  bool wait(std::chrono::milliseconds limit);

 private:
  mutable std::mutex lock_;
  std::condition_variable told_;
  std::string waiting_;
  std::size_t handed_out_ = 0;  // bytes of the last swap_out(): counted as in use until the next one
  std::vector<std::uint64_t> lost_;
  bool is_closed_ = false;
};

}  // namespace uprobe
