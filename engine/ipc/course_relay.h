// SPDX-License-Identifier: MIT
// Takes what there is to tell of the course of a session from the thread that reads to the one of run(), beside the queue of records
// (engine/ipc/record_queue.h): a start before the process's records as far as possible, an end after them.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "engine/output/course.h"
#include "engine/output/mappings.h"

namespace uprobe {

class CourseRelay {
 public:
  using Item = std::variant<format::ProcessEvent, format::LossSoFar, format::ProcessMappings>;
  static constexpr std::size_t kMost = 65536;

  // The thread that reads. Items are dropped while the other one is too far behind.
  void take(Item item) {
    const std::lock_guard lock(lock_);
    waiting_.size() < kMost ? waiting_.push_back(std::move(item)) : static_cast<void>(++dropped_);
  }
  std::uint64_t dropped() const {
    const std::lock_guard lock(lock_);
    return dropped_;
  }

  // The thread of run(), after it has taken records out of the queue and before it hands them on: tells all but ends.
  template <class Tell>
  void tell_before(const Tell& tell) {
    std::vector<Item> items;
    {
      const std::lock_guard lock(lock_);
      items.swap(waiting_);
    }
    for (Item& item : items) is_end(item) ? new_ends_.push_back(std::move(item)) : tell(item);
  }
  // After it has handed them on. The records before an end were in the queue when the end was taken, so the next records taken
  // out of it are their last.
  template <class Tell>
  void tell_after(const Tell& tell) {
    for (const Item& item : std::exchange(ends_, std::exchange(new_ends_, {}))) tell(item);
  }

 private:
  static bool is_end(const Item& item) {
    const auto* const event = std::get_if<format::ProcessEvent>(&item);
    return event != nullptr && event->kind == format::ProcessEvent::Kind::end;
  }

  mutable std::mutex lock_;
  std::vector<Item> waiting_;
  std::uint64_t dropped_ = 0;
  std::vector<Item> new_ends_, ends_;
};

}  // namespace uprobe
