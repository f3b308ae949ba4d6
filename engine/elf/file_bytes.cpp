// SPDX-License-Identifier: MIT
// Fresh memory is zero and takes none until it is written, so only the file's data is read. Pages of the usual size: to make
// large ones the kernel may first move other memory, which took 300 ms for a file of 100 MB.
#include "engine/elf/file_bytes.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/regular_file.h"

namespace uprobe::elf {

namespace {

// Pages that are wanted anyway are cheaper at once than by a fault each. A kernel before 5.14 does not have this advice.
void populate(std::uint8_t* begin, std::uint64_t bytes) {
  constexpr std::uint64_t kPage = 4096;
  constexpr int kPopulateWrite = 23;
  const auto at = reinterpret_cast<std::uint64_t>(begin) & ~(kPage - 1);
  ::madvise(reinterpret_cast<void*>(at), reinterpret_cast<std::uint64_t>(begin) + bytes - at, kPopulateWrite);
}

}  // namespace

FileBytes::~FileBytes() {
  if (bytes_ != nullptr) ::munmap(bytes_, mapped_);
}

Result<FileBytes> FileBytes::zeros(std::uint64_t size, const std::string& path) {
  FileBytes made;
  made.mapped_ = std::max<std::uint64_t>(size, 1);
  void* const memory =
      ::mmap(nullptr, made.mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return Error{.code = Code::limit, .text = "does not fit into memory", .where = path};
  ::madvise(memory, made.mapped_, MADV_NOHUGEPAGE);
  made.bytes_ = static_cast<std::uint8_t*>(memory);
  made.size_ = size;
  return made;
}

Result<FileBytes> FileBytes::read(const Fd& fd, std::uint64_t size, std::uint64_t most, const std::string& path) {
  Result<FileBytes> made = zeros(size, path);
  if (!made) return made.error();
  std::uint64_t left = most;
  for (FilePart part = next_data(fd, 0, size); !part.empty(); part = next_data(fd, part.end, size)) {
    if (part.end - part.begin > left)
      return Error{
          .code = Code::limit, .text = "has more than " + std::to_string(most >> 20) + " MiB of data", .where = path};
    left -= part.end - part.begin;
    populate(made->bytes_ + part.begin, part.end - part.begin);
    const ssize_t got = read_at(fd, made->bytes_ + part.begin, part.end - part.begin, part.begin);
    if (got < 0)
      return Error{Code::system, std::string("cannot be read: ") + std::strerror(errno), path, -1, {}, errno};
    if (static_cast<std::uint64_t>(got) < part.end - part.begin) break;
  }
  struct stat now {};
  if (::fstat(fd.get(), &now) == 0) made->size_ = std::min(size, static_cast<std::uint64_t>(now.st_size));
  return made;
}

Status FileBytes::load(const Fd& fd, std::uint64_t offset, std::uint64_t bytes) {
  if (offset >= size_) return ok();
  if (read_at(fd, bytes_ + offset, std::min<std::uint64_t>(bytes, size_ - offset), offset) >= 0) return ok();
  return Error{.code = Code::system, .text = std::string("cannot be read: ") + std::strerror(errno), .err = errno};
}

Result<FileBytes> FileBytes::copy_of(std::span<const std::uint8_t> bytes, const std::string& path) {
  Result<FileBytes> made = zeros(bytes.size(), path);
  if (made) std::copy(bytes.begin(), bytes.end(), made->bytes_);
  return made;
}

}  // namespace uprobe::elf
