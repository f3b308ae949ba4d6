// SPDX-License-Identifier: MIT
// Reads the blocks of a recording from the beginning to the first that is not whole. The file may have been made by anybody.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/recording/file_format.h"

namespace uprobe::recording {

class Blocks {
 public:
  // Fails if the file is no recording, or one of another version.
  static Result<Blocks> open(const std::string& path);

  // The entries of the next block, valid until the next call; nothing: there is none. Fails at a block that is not whole.
  Result<std::optional<std::string_view>> next();

 private:
  explicit Blocks(Fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  // As many of the bytes as are there.
  Result<std::size_t> read(void* to, std::size_t bytes);
  Error damaged(const std::string& what) const;

  Fd file_;
  std::string path_;
  std::uint64_t at_ = 0;
  std::string entries_;
};

}  // namespace uprobe::recording
