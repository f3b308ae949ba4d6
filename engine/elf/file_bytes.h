// SPDX-License-Identifier: MIT
// The contents of a file in memory at the time of reading: later changes to the file do not affect them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe::elf {

class FileBytes {
 public:
  // Of a file that grew or shrank since it was measured, the current contents up to the measured size. Holes take no memory.
  // Code::system, or Code::limit for lack of memory or for more than `most` bytes of data.
  static Result<FileBytes> read(const Fd& fd, std::uint64_t size, std::uint64_t most, const std::string& path);
  // Zeros, of which parts are then loaded.
  static Result<FileBytes> zeros(std::uint64_t size, const std::string& path);
  // As much of a part as lies inside and as the file still has.
  Status load(const Fd& fd, std::uint64_t offset, std::uint64_t bytes);
  static Result<FileBytes> copy_of(std::span<const std::uint8_t> bytes, const std::string& path);

  FileBytes(FileBytes&& other) noexcept
      : bytes_(std::exchange(other.bytes_, nullptr)),
        mapped_(std::exchange(other.mapped_, 0)),
        size_(std::exchange(other.size_, 0)) {}
  FileBytes& operator=(FileBytes&& other) noexcept {
    std::swap(bytes_, other.bytes_), std::swap(mapped_, other.mapped_), std::swap(size_, other.size_);
    return *this;
  }
  ~FileBytes();

  // Moving the object leaves the bytes where they are.
  std::span<const std::uint8_t> span() const { return {bytes_, size_}; }

 private:
  FileBytes() = default;

  std::uint8_t* bytes_ = nullptr;
  std::size_t mapped_ = 0;
  std::size_t size_ = 0;
};

}  // namespace uprobe::elf
