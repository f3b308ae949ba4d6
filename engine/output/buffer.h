// SPDX-License-Identifier: MIT
// Text that grows at its end and that formats write without a check per character. Not a std::string, which must be filled
// before it can be written to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

namespace uprobe::format {

class Buffer {
 public:
  // Uninitialised room for `bytes` more; end_at() says how much of it was used.
  char* room(std::size_t bytes) {
    if (text_ == nullptr || capacity_ - size_ < bytes) grow(bytes);
    return text_.get() + size_;
  }
  void end_at(const char* end) { size_ = static_cast<std::size_t>(end - text_.get()); }
  void add(std::string_view text) {
    std::copy(text.begin(), text.end(), room(text.size()));
    size_ += text.size();
  }

  // Over what is there.
  void put_at(std::size_t place, const void* bytes, std::size_t size) { std::memcpy(text_.get() + place, bytes, size); }

  std::string_view view() const { return {text_.get(), size_}; }
  std::size_t size() const { return size_; }
  void clear() { size_ = 0; }

 private:
  void grow(std::size_t bytes) {
    const std::size_t capacity = 2 * (size_ + bytes);
    auto text = std::make_unique_for_overwrite<char[]>(capacity);
    if (size_ != 0) std::memcpy(text.get(), text_.get(), size_);
    text_ = std::move(text);
    capacity_ = capacity;
  }

  std::unique_ptr<char[]> text_;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace uprobe::format
