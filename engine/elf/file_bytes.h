// The contents of a file in memory, as they were when it was read: whatever happens to the file, they stay.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe::elf {

class FileBytes {
 public:
  // A file that grew or shrank since it was measured is what read() finds now, up to its measured size. Code::system, or
  // Code::limit where there is not so much memory.
  static Result<FileBytes> read(const Fd& fd, std::uint64_t size, const std::string& path);
  static Result<FileBytes> copy_of(std::span<const std::uint8_t> bytes, const std::string& path);

  // Moving the object leaves the bytes where they are.
  std::span<const std::uint8_t> span() const { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::uint8_t* bytes) const { std::free(bytes); }
  };
  static Result<FileBytes> make(std::uint64_t size, const std::string& path);

  std::unique_ptr<std::uint8_t[], Free> bytes_;
  std::size_t size_ = 0;
};

}  // namespace uprobe::elf
