// SPDX-License-Identifier: MIT
#include "engine/plan/unwinder_signs.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "engine/base/regular_file.h"

namespace uprobe::plan {
namespace {

bool contains(std::string_view text, std::string_view name) {
  const auto found = std::search(text.begin(), text.end(), std::boyer_moore_searcher(name.begin(), name.end()));
  return found != text.end();
}

}  // namespace

// Read a part at a time: a file that is mapped can be cut off by its owner.
bool may_unwind_by_itself(const std::string& path) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{512} << 20;
  constexpr std::size_t kChunk = 1 << 20, kLongest = 32;
  const auto file = open_regular(path);
  if (!file) return false;
  const std::uint64_t end = std::min(static_cast<std::uint64_t>(file->about.st_size), kMostBytes);
  std::string text;
  bool looks_for_objects = false;
  for (FilePart part = next_data(file->fd, 0, end); !part.empty(); part = next_data(file->fd, part.end, end)) {
    text.clear();
    for (std::uint64_t at = part.begin; at < part.end;) {
      const std::size_t kept = std::min(text.size(), kLongest);  // a name may lie across
      text.erase(0, text.size() - kept);
      text.resize(kept + std::min<std::uint64_t>(kChunk, part.end - at));
      const ssize_t got = read_at(file->fd, text.data() + kept, text.size() - kept, at);
      if (got <= 0) return false;
      text.resize(kept + static_cast<std::size_t>(got));
      at += static_cast<std::uint64_t>(got);
      if (contains(text, "_Unwind_")) return false;
      looks_for_objects = looks_for_objects || contains(text, "dl_iterate_phdr");
    }
  }
  return looks_for_objects;
}

}  // namespace uprobe::plan
