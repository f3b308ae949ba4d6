// SPDX-License-Identifier: MIT
#include "engine/base/regular_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace uprobe {
namespace {

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "is a directory";
  if (S_ISFIFO(mode)) return "is a fifo";
  if (S_ISSOCK(mode)) return "is a socket";
  return "is a device";
}

Error cannot_open(const std::string& path, int err) {
  if (err == ENOENT || err == ENOTDIR)
    return Error{.code = Code::not_found, .text = std::strerror(err), .where = path, .err = err};
  return Error{
      .code = Code::system, .text = std::string("cannot be opened: ") + std::strerror(err), .where = path, .err = err};
}

}  // namespace

// O_PATH opens nothing yet: opening a device may already have effects. The second open is of the same inode, even if the path
// leads to another by then.
Result<RegularFile> open_regular(const std::string& path) {
  RegularFile file;
  const Fd place(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!place || ::fstat(place.get(), &file.about) != 0) return cannot_open(path, errno);
  if (!S_ISREG(file.about.st_mode))
    return Error{.code = Code::refused, .text = kind_of(file.about.st_mode), .where = path, .err = EINVAL};
  constexpr int kHow = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  const std::string again = "/proc/self/fd/" + std::to_string(place.get());
  const struct stat seen = file.about;
  file.fd = Fd(::open(again.c_str(), kHow));
  // A /proc of another PID namespace does not know this process.
  if (!file.fd && errno == ENOENT) file.fd = Fd(::open(path.c_str(), kHow));
  if (!file.fd || ::fstat(file.fd.get(), &file.about) != 0) return cannot_open(path, errno);
  if (file.about.st_dev != seen.st_dev || file.about.st_ino != seen.st_ino) return cannot_open(path, ESTALE);
  return file;
}

Result<std::string> read_regular(const std::string& path, std::size_t limit) {
  const auto file = open_regular(path);
  if (!file) return file.error();
  const auto size = static_cast<std::uint64_t>(file->about.st_size);
  if (size > limit)
    return Error{.code = Code::limit, .text = "is larger than " + std::to_string(limit) + " bytes", .where = path};
  std::string text(size, '\0');
  const ssize_t got = read_at(file->fd, text.data(), text.size(), 0);
  if (got < 0) return system_error("read " + path, errno);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

// A file system without support for holes has none.
FilePart next_data(const Fd& file, std::uint64_t offset, std::uint64_t end) {
  if (offset >= end || end > INT64_MAX) return {};
  const off_t data = ::lseek(file.get(), static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0) return errno == ENXIO ? FilePart{} : FilePart{offset, end};
  const off_t hole = ::lseek(file.get(), data, SEEK_HOLE);
  const std::uint64_t until = hole < 0 ? end : static_cast<std::uint64_t>(hole);
  return {static_cast<std::uint64_t>(data), std::min(until, end)};
}

ssize_t read_at(const Fd& file, void* to, std::size_t bytes, std::uint64_t offset) {
  auto* at = static_cast<char*>(to);
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::pread(file.get(), at + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace uprobe
