// SPDX-License-Identifier: MIT
// A contiguous queue of bytes, appended at the back and taken from the front. It holds records that were copied out of a ring
// and wait to be merged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace uprobe::trace {

class ByteQueue {
 public:
  // Uninitialised room for `bytes` more at the back; append() makes what is written there count.
  std::uint8_t* room(std::size_t bytes) {
    if (capacity_ - end_ < bytes) make_room(bytes);
    return store_.get() + end_;
  }
  void append(std::size_t bytes) { end_ += bytes; }

  std::uint8_t* front() { return store_.get() + begin_; }
  const std::uint8_t* front() const { return store_.get() + begin_; }
  std::size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }

  // Takes `bytes` off the front. An empty queue starts again at its beginning, and frees memory that a burst needed.
  void pop(std::size_t bytes) {
    begin_ += bytes;
    if (begin_ != end_) return;
    begin_ = end_ = 0;
    if (capacity_ <= kKeep) return;
    store_.reset();
    capacity_ = 0;
  }

 private:
  static constexpr std::size_t kKeep = std::size_t{8} << 20;

  // Moves the contents to the beginning, into a larger store if they would fill more than half of this one.
  void make_room(std::size_t bytes) {
    const std::size_t used = size();
    if (used + bytes > capacity_ / 2) {
      const std::size_t capacity = std::max(2 * (used + bytes), std::size_t{4096});
      auto store = std::make_unique_for_overwrite<std::uint8_t[]>(capacity);
      if (used != 0) std::memcpy(store.get(), front(), used);
      store_ = std::move(store);
      capacity_ = capacity;
    } else if (used != 0) {
      std::memmove(store_.get(), front(), used);
    }
    begin_ = 0;
    end_ = used;
  }

  std::unique_ptr<std::uint8_t[]> store_;
  std::size_t capacity_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace uprobe::trace
