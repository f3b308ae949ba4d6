// SPDX-License-Identifier: MIT
// Files that are named by a target, or by the contents of a file: their owner may have put anything there.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe {

struct RegularFile {
  Fd fd;
  struct stat about {};
};

// Opens a regular file for reading, without waiting: it opens no FIFO, device, socket or directory, and a file that its owner
// has locked by a lease is EAGAIN. Error::where is the path, the text reads on from it: not_found "No such file or directory";
// refused "is a fifo"; system "cannot be opened: Permission denied".
Result<RegularFile> open_regular(const std::string& path);

// The contents of the file now, up to `limit` bytes (Code::limit beyond). Read and not mapped: a file that is truncated during
// the read cannot kill the reader. The file may change while it is read.
Result<std::string> read_regular(const std::string& path, std::size_t limit);

// The next part of a file, from `offset` on and below `end`, that holds data: holes are zeros and need not be read.
// An empty part: there is none.
struct FilePart {
  std::uint64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};
FilePart next_data(const Fd& file, std::uint64_t offset, std::uint64_t end);

// Reads `bytes`, or up to the end of the file: the number of bytes read, or -1 and errno.
ssize_t read_at(const Fd& file, void* to, std::size_t bytes, std::uint64_t offset);

}  // namespace uprobe
