// Memory that nobody clears before the file is read into it. Of pages of the usual size: to make large ones the kernel may
// first move other memory about, which took 300 ms for a file of 100 MB.
#include "engine/elf/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace uprobe::elf {
namespace {

// In steps: a sparse file of a wrong size does not take its memory before it has been read.
constexpr std::size_t kReadStep = std::size_t{64} << 20;

}  // namespace

Result<FileBytes> FileBytes::make(std::uint64_t size, const std::string& path) {
  FileBytes made;
  void* memory = std::malloc(std::max<std::uint64_t>(size, 1));
  if (memory == nullptr) return Error{.code = Code::limit, .text = "does not fit into memory", .where = path};
  made.bytes_.reset(static_cast<std::uint8_t*>(memory));
  made.size_ = size;
  return made;
}

Result<FileBytes> FileBytes::read(const Fd& fd, std::uint64_t size, const std::string& path) {
  Result<FileBytes> made = make(size, path);
  if (!made) return made.error();
  std::uint64_t done = 0;
  while (done < size) {
    const std::size_t step = std::min<std::uint64_t>(size - done, kReadStep);
    const ssize_t count = ::pread(fd.get(), made->bytes_.get() + done, step, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return Error{Code::system, std::string("cannot be read: ") + std::strerror(errno), path, -1, {}, errno};
    if (count == 0) break;
    done += static_cast<std::uint64_t>(count);
  }
  made->size_ = done;
  return made;
}

Result<FileBytes> FileBytes::copy_of(std::span<const std::uint8_t> bytes, const std::string& path) {
  Result<FileBytes> made = make(bytes.size(), path);
  if (made) std::copy(bytes.begin(), bytes.end(), made->bytes_.get());
  return made;
}

}  // namespace uprobe::elf
