// SPDX-License-Identifier: MIT
#include "engine/pictures/deflate.h"

#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>

namespace uprobe::format {

namespace {

constexpr int kWindowBits = 15, kOfGzip = 16, kMemoryLevel = 8, kLevel = 6;

}  // namespace

struct Deflater::Stream : z_stream {
  Stream() : z_stream{} {}
};

Deflater::Deflater(Form form) : stream_(std::make_unique<Stream>()) {
  const int bits = form == Form::gzip ? kWindowBits + kOfGzip : -kWindowBits;
  if (::deflateInit2(stream_.get(), kLevel, Z_DEFLATED, bits, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
}

Deflater::~Deflater() { ::deflateEnd(stream_.get()); }

void Deflater::add(std::string_view bytes) {
  constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kMost))) run(bytes.substr(0, kMost), Z_NO_FLUSH);
}

void Deflater::end() { run({}, Z_FINISH); }

void Deflater::run(std::string_view bytes, int flush) {
  std::array<char, 16384> out;
  stream_->next_in = reinterpret_cast<const Bytef*>(bytes.data());
  stream_->avail_in = static_cast<uInt>(bytes.size());
  do {
    stream_->next_out = reinterpret_cast<Bytef*>(out.data());
    stream_->avail_out = out.size();
    ::deflate(stream_.get(), flush);
    compressed_.append(out.data(), out.size() - stream_->avail_out);
  } while (stream_->avail_out == 0);
}

std::string compressed(std::string_view bytes, Deflater::Form form) {
  Deflater deflater(form);
  deflater.add(bytes);
  deflater.end();
  return deflater.bytes();
}

}  // namespace uprobe::format
