// SPDX-License-Identifier: MIT
// A file that holds debug information alone: sections, and no code. Read are only the parts that its names and its identity take.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/regular_file.h"
#include "engine/base/result.h"
#include "engine/elf/file_bytes.h"
#include "engine/elf/image.h"

namespace uprobe::elf {

class DebugImage {
 public:
  // Code::limit: the parts have more than `most` bytes; Code::damaged, Code::refused, Code::system as for any ELF file.
  static Result<DebugImage> read(const RegularFile& file, std::uint64_t most, const std::string& path);
  // The same, of the notes alone.
  static Result<DebugImage> read_notes(const RegularFile& file, std::uint64_t most, const std::string& path);
  static Result<DebugImage> copy_of(std::span<const std::uint8_t> bytes, const std::string& path);

  std::span<const std::uint8_t> build_id() const { return image_.build_id(); }
  const Image& image() const { return image_; }

 private:
  DebugImage(FileBytes bytes, Image image) : bytes_(std::move(bytes)), image_(std::move(image)) {}
  enum class Parts : std::uint8_t { notes, names };  // names: notes too
  static Result<DebugImage> read(const RegularFile& file, std::uint64_t most, const std::string& path, Parts parts);
  static Status load_tables(const RegularFile& file, FileBytes& to, std::uint64_t most, Parts parts);
  static Result<DebugImage> over(FileBytes bytes);

  FileBytes bytes_;
  Image image_;
};

}  // namespace uprobe::elf
