// SPDX-License-Identifier: MIT
// Compressed bytes (zlib): RFC 1951, which browsers read, and RFC 1952, the form of .gz files.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace uprobe::format {

class Deflater {
 public:
  enum class Form { raw, gzip };

  // Throws std::bad_alloc where there is no memory.
  explicit Deflater(Form form);
  ~Deflater();
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  void add(std::string_view bytes);
  // Nothing is added afterwards.
  void end();
  // What has been compressed so far.
  const std::string& bytes() const { return compressed_; }

 private:
  struct Stream;
  void run(std::string_view bytes, int flush);

  const std::unique_ptr<Stream> stream_;
  std::string compressed_;
};

std::string compressed(std::string_view bytes, Deflater::Form form);

}  // namespace uprobe::format
