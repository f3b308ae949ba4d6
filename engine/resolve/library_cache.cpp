// SPDX-License-Identifier: MIT
#include "engine/resolve/library_cache.h"

#include "arch/abi/elf.h"
#include "engine/elf/bytes_view.h"

namespace uprobe {
namespace {

constexpr std::string_view kOldMagic = "ld.so-1.7.0", kMagic = "glibc-ld.so.cache1.1";
constexpr std::uint64_t kOldHeader = 16, kOldEntry = 12, kHeader = 48;
constexpr std::uint64_t kLongestPath = 4096;

// The older format may stand before the current one.
std::uint64_t start_of(std::string_view bytes, elf::BytesView view) {
  if (!bytes.starts_with(kOldMagic)) return 0;
  const std::uint64_t count = view.read<std::uint32_t>(kOldHeader - sizeof(std::uint32_t)).value_or(0);
  return (kOldHeader + count * kOldEntry + 7) / 8 * 8;
}

}  // namespace

std::vector<CachedLibrary> parse_library_cache(std::string_view bytes) {
  const elf::BytesView all({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  const std::uint64_t start = start_of(bytes, all);
  if (start > bytes.size() || !bytes.substr(start).starts_with(kMagic)) return {};
  const elf::BytesView cache = all.from(start);
  const std::uint64_t count = cache.read<std::uint32_t>(kMagic.size()).value_or(0);
  std::vector<CachedLibrary> found;
  elf::Cursor entries(cache, kHeader);
  for (std::uint64_t i = 0; i < count && entries.good(); ++i) {
    const auto flags = entries.take<std::uint32_t>(), name = entries.take<std::uint32_t>(),
               path = entries.take<std::uint32_t>();
    entries.skip(sizeof(std::uint32_t));  // the oldest kernel
    const auto processors = entries.take<std::uint64_t>();
    if (!entries.good() || flags != arch::kCachedLibrary) continue;
    const auto name_text = cache.text(name, kLongestPath), path_text = cache.text(path, kLongestPath);
    if (name_text && path_text) found.push_back({std::string(*name_text), std::string(*path_text), processors == 0});
  }
  return found;
}

}  // namespace uprobe
