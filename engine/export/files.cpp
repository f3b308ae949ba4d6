// SPDX-License-Identifier: MIT
#include "engine/export/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "engine/base/fd.h"

namespace uprobe::format {

void Files::write_at(std::uint64_t place, std::string_view bytes) {
  while (error_ == 0 && !bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(place));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) error_ = errno;
    if (written <= 0) continue;
    bytes.remove_prefix(static_cast<std::size_t>(written));
    place += static_cast<std::uint64_t>(written);
  }
}

void Files::read_at(std::uint64_t place, char* into, std::size_t size) {
  std::size_t filled = 0;
  while (error_ == 0 && filled < size) {
    const ssize_t got = ::pread(descriptor_, into + filled, size - filled, static_cast<off_t>(place + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error_ = errno;
    if (got <= 0) break;
    filled += static_cast<std::size_t>(got);
  }
  std::fill(into + filled, into + size, '\0');
}

void Files::resize(std::uint64_t size) {
  if (error_ == 0 && ::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) error_ = errno;
}

void Files::append(const std::string& name, std::string_view bytes) {
  if (error_ != 0) return;
  const Fd file(::openat(descriptor_, name.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  struct stat before {};
  if (!file || ::fstat(file.get(), &before) != 0) return static_cast<void>(error_ = errno);
  error_ = write_all(file.get(), bytes.data(), bytes.size());
  const bool is_whole = error_ == 0 || ::ftruncate(file.get(), before.st_size) == 0;
  static_cast<void>(is_whole);  // else the end of the file is damaged, and the error is the one that is told
}

}  // namespace uprobe::format
