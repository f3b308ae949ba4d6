#include "engine/plan/file_jumps.h"

#include <algorithm>

#include "engine/shared/process_block.h"

namespace uprobe::plan {

FileJumps::FileJumps(const FileFlow& flow, std::vector<std::uint64_t> wanted, std::span<const std::uint64_t> others)
    : flow_(flow) {
  WindowClaims claims;
  std::sort(wanted.begin(), wanted.end());
  for (const std::uint64_t address : wanted) claims.add_place(address);
  for (const std::uint64_t address : others) claims.add_place(address);
  for (const std::uint64_t address : wanted) {
    const Window window = plan_window(flow, address, claims);
    claims.take(window);
    windows_.emplace_hint(windows_.end(), address, window);
    if (!window.is_jump()) continue;
    patch(address, window.kind == WindowKind::short_jump ? kShortJumpBytes : kJumpBytes);
    if (window.kind == WindowKind::short_jump) patch(window.padding, kJumpBytes);
  }
  std::sort(patched_.begin(), patched_.end());
}

const Window* FileJumps::window_at(std::uint64_t address) const {
  const auto found = windows_.find(address);
  return found == windows_.end() ? nullptr : &found->second;
}

std::uint16_t FileJumps::changed_behind(std::uint64_t address) const {
  const std::uint64_t first = address + 1, last = first + shared::kMostBehind;
  std::uint16_t bits = 0;
  auto at = std::upper_bound(patched_.begin(), patched_.end(), std::pair{address, ~std::uint64_t{0}});
  for (; at != patched_.end() && at->first < last; ++at)
    for (std::uint64_t byte = at->first; byte < std::min(at->second, last); ++byte)
      bits = static_cast<std::uint16_t>(bits | 1U << (byte - first));
  return bits;
}

}  // namespace uprobe::plan
