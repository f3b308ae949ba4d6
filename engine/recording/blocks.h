// SPDX-License-Identifier: MIT
// The blocks of a recording, by lane: found from the beginning to the first that is not whole, and read one by one. The file may
// have been made by anybody.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/recording/file_format.h"

namespace uprobe::recording {

struct BlockPlace {
  std::uint64_t at;  // of its head, in the file
  std::uint32_t bytes;
  std::uint64_t sum;
};

class Blocks {
 public:
  // Fails if the file is no recording, or one of another version.
  static Result<Blocks> open(const std::string& path);

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
  explicit Blocks(Fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  // As many of the bytes as are there.
  Result<std::size_t> read_at(std::uint64_t at, void* to, std::size_t bytes) const;
  Status find_blocks(std::uint64_t size);
  Status check_memory() const;

  Fd file_;
  std::string path_;
  std::map<std::uint32_t, std::vector<BlockPlace>> lanes_;
  std::optional<Error> end_;
};

}  // namespace uprobe::recording
