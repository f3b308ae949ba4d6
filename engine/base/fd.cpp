// SPDX-License-Identifier: MIT
#include "engine/base/fd.h"

#include <fcntl.h>

#include <cerrno>

namespace uprobe {

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return system_error("open " + path, errno);
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("read " + path, errno);
    if (n == 0) return text;
    if (text.size() + static_cast<std::size_t>(n) > limit)
      return Error{.code = Code::limit, .text = path + " is larger than " + std::to_string(limit) + " bytes"};
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

int write_all(int fd, const void* bytes, std::size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size != 0) {
    const ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return 0;
}

}  // namespace uprobe
