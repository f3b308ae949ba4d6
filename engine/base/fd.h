// SPDX-License-Identifier: MIT
// A file descriptor that closes itself, and reading a whole file.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

#include "engine/base/result.h"

namespace uprobe {

// Owns a descriptor; -1 is none. Move-only.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

// The whole of a file that is read sequentially (also /proc files, whose size is 0). Fails with Code::system, or Code::limit
// beyond `limit` bytes: a process may have 65,530 mappings, and paths of 4,096 bytes. For files of the kernel, and files that
// the user names; regular_file.h reads all others.
Result<std::string> read_file(const std::string& path, std::size_t limit = std::size_t{32} << 20);

// Writes all of `bytes`; retries short writes and EINTR. Returns 0 or an errno.
int write_all(int fd, const void* bytes, std::size_t size);

}  // namespace uprobe
