// SPDX-License-Identifier: MIT
// glibc's cache of libraries, /etc/ld.so.cache (ldconfig(8)): the paths of a library's name, in the loader's own file format.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace uprobe {

inline constexpr const char* kLibraryCache = "/etc/ld.so.cache";
inline constexpr std::size_t kMostCacheBytes = std::size_t{16} << 20;

struct CachedLibrary {
  std::string name, path;
  bool is_plain = true;  // false: for some processors alone
};

// Those of this machine, in the file's order; all offsets and counts are checked against the file's size. An unknown format has
// none.
std::vector<CachedLibrary> parse_library_cache(std::string_view bytes);

}  // namespace uprobe
