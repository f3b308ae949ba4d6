// SPDX-License-Identifier: MIT
#include "engine/elf/debug_names.h"

#include <lzma.h>

#include <chrono>
#include <string_view>

#include "engine/base/confined.h"
#include "engine/elf/debug_files.h"

namespace uprobe::elf {
namespace {

constexpr std::size_t kMostUnpacked = std::size_t{15} << 20;  // an answer of a confined child is not larger than 16 MiB
constexpr std::uint64_t kMostMemory = std::uint64_t{96} << 20;

// What of it can be unpacked; empty: nothing, or more than is allowed.
std::string unpack(std::span<const std::uint8_t> packed) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (::lzma_stream_decoder(&stream, kMostMemory, 0) != LZMA_OK) return {};
  std::string unpacked(kMostUnpacked, '\0');
  stream.next_in = packed.data();
  stream.avail_in = packed.size();
  stream.next_out = reinterpret_cast<std::uint8_t*>(unpacked.data());
  stream.avail_out = unpacked.size();
  const lzma_ret done = ::lzma_code(&stream, LZMA_FINISH);
  unpacked.resize(done == LZMA_STREAM_END ? unpacked.size() - stream.avail_out : 0);
  ::lzma_end(&stream);
  return unpacked;
}

// The ELF file in .gnu_debugdata. Unpacked in a confined child: anyone may have made the bytes.
Result<std::string> unpack_mini_debug(std::span<const std::uint8_t> packed) {
  const Confinement how{.user = 0, .memory_bytes = 2 * kMostMemory, .patience = std::chrono::seconds(10)};
  auto child = Confined::start(how, [packed](std::string_view) { return unpack(packed); });
  if (!child) return child.error();
  auto unpacked = child->ask({});
  if (!unpacked) return unpacked;
  if (unpacked->empty()) return Error{.code = Code::damaged, .text = "cannot be unpacked"};
  return unpacked;
}

}  // namespace

std::unique_ptr<const DebugNames> DebugNames::over(Result<DebugImage> image) {
  if (!image) return nullptr;
  std::unique_ptr<const DebugNames> names(new DebugNames(image.take()));
  return names->tables_.has_symtab() ? std::move(names) : nullptr;
}

std::unique_ptr<const DebugNames> DebugNames::find(const ElfFile& file, std::uint64_t most) {
  const auto search = find_debug_file(file);
  if (search.found)
    if (auto names = over(DebugImage::read(search.found->file, most, search.found->path))) return names;
  const auto packed = file.section(".gnu_debugdata");
  const auto unpacked = packed.empty() ? Result<std::string>(std::string()) : unpack_mini_debug(packed);
  if (!unpacked || unpacked->empty()) return nullptr;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(unpacked->data());
  return over(DebugImage::copy_of({bytes, unpacked->size()}, file.path()));
}

}  // namespace uprobe::elf
