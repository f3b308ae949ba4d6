// SPDX-License-Identifier: MIT
// The blocks of a recording, by lane: found from the beginning to the first that is not whole, and read one by one. The file may
// have been made by anybody.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/regular_file.h"
#include "engine/base/result.h"
#include "engine/recording/file_format.h"

namespace uprobe::recording {

// A file that begins as a recording. Its owner may change it while it is read.
struct Recording {
  RegularFile file;
  std::string path;  // as the user has named it
};

// Code::usage for what is no regular file: a recording is sorted as it is printed, and a FIFO would hold the tool. Code::refused
// where the file is no recording, or one of another version.
Result<Recording> open_recording(const std::string& path);

struct BlockPlace {
  std::uint64_t at;  // of its head, in the file
  std::uint32_t bytes;
  std::uint64_t sum;
};

class Blocks {
 public:
  // Finds the blocks. `recording` must outlive it.
  static Result<Blocks> of(const Recording& recording);

  // By lane, each in the order of the file.
  const std::map<std::uint32_t, std::vector<BlockPlace>>& lanes() const { return lanes_; }
  // The blocks after this place do not count.
  void end_at(std::uint64_t at);
  // Why there are no blocks after the last one; nothing: the file ends there.
  const std::optional<Error>& end() const { return end_; }

  // Puts the entries of a block into `entries`. Fails if they are not those that were written.
  Status read(std::uint32_t lane, const BlockPlace& place, std::string& entries) const;
  // For what a block holds and no recorder writes.
  Error damaged(std::uint64_t at, const std::string& what = "the recording is damaged") const;

 private:
  explicit Blocks(const Recording& recording) : recording_(&recording) {}
  // As many of the bytes as are there.
  Result<std::size_t> read_at(std::uint64_t at, void* to, std::size_t bytes) const;
  Status find_blocks();
  Status check_memory() const;

  const Recording* recording_;
  std::map<std::uint32_t, std::vector<BlockPlace>> lanes_;
  std::optional<Error> end_;
};

}  // namespace uprobe::recording
