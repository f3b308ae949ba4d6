// SPDX-License-Identifier: MIT
// What a format writes that is no stream of bytes: one file, at any place of it, or several files of a folder.
//
// After the first error nothing is written any more; error() says what it was. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace uprobe::format {

// More processors than Linux can have. A recording may name any; records of others are not written, and counted.
inline constexpr std::uint32_t kMostCpus = 8192;

class Files {
 public:
  // An open file, for reading and writing, or an open folder. The descriptor stays its owner's, and has to outlive this.
  explicit Files(int descriptor) : descriptor_(descriptor) {}
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  // Of the file. Bytes that were never written are zeros.
  void write_at(std::uint64_t place, std::string_view bytes);
  void read_at(std::uint64_t place, char* into, std::size_t size);
  void resize(std::uint64_t size);

  // Of the folder: adds to the end of the file `name`, which is made with mode 0600 where there is none: all of the bytes or, after an
  // error, none. `name` has no slash.
  void append(const std::string& name, std::string_view bytes);

  // An errno; 0: all went well so far.
  int error() const { return error_; }

 private:
  int descriptor_;
  int error_ = 0;
};

}  // namespace uprobe::format
