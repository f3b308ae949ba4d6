// SPDX-License-Identifier: MIT
// Reads the blocks of a recording from the beginning to the first that is not whole. The file may have been made by anybody.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/base/regular_file.h"
#include "engine/base/result.h"
#include "engine/recording/file_format.h"

namespace uprobe::recording {

// A file that begins as a recording. Its owner may change it while it is read.
struct Recording {
  RegularFile file;
  std::string path;  // as the user has named it
};

// Code::usage for what is no regular file: a FIFO would hold the tool, and a recording may be read twice. Code::refused where the
// file is no recording, or one of another version.
Result<Recording> open_recording(const std::string& path);

class Blocks {
 public:
  // `recording` must outlive it.
  explicit Blocks(const Recording& recording) : recording_(recording) {}

  // The entries of the next block, valid until the next call; nothing: there is none. Fails at a block that is not whole.
  Result<std::optional<std::string_view>> next();

 private:
  // As many of the bytes as are there.
  Result<std::size_t> read(void* to, std::size_t bytes);
  Error damaged(const std::string& what) const;

  const Recording& recording_;
  std::uint64_t at_ = sizeof(FileHead);
  std::string entries_;
};

}  // namespace uprobe::recording
