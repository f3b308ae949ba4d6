// SPDX-License-Identifier: MIT
#include "engine/plan/file_jumps.h"

#include <algorithm>
#include <iterator>

#include "engine/shared/process_block.h"

namespace uprobe::plan {

FileJumps::FileJumps(const FileFlow& flow, std::vector<std::uint64_t> wanted, std::span<const std::uint64_t> others,
                     std::span<const std::uint64_t> lesser)
    : flow_(flow) {
  std::sort(wanted.begin(), wanted.end());
  for (const std::uint64_t address : wanted) claims_.add_place(address);
  for (const std::uint64_t address : others) claims_.add_place(address);
  for (const std::uint64_t address : wanted) take(plan_window(flow, address, claims_));
  for (const std::uint64_t address : lesser) {
    const Window window = plan_window(flow, address, claims_);
    if (window.kind == WindowKind::one) claims_.add_place(address), take(window);
  }
  std::sort(patched_.begin(), patched_.end());
}

void FileJumps::take(const Window& window) {
  claims_.take(window);
  windows_.emplace(window.address, window);
  if (!window.is_jump()) return;
  const bool is_short = window.kind == WindowKind::short_jump;
  patch(window.begin(), is_short ? kShortJumpBytes : kJumpBytes);
  if (is_short) patch(window.padding, kJumpBytes);
}

// Whether a change there matters only for the place itself: no other place checks so many bytes after itself, and no
// jump is near.
bool FileJumps::is_alone(std::uint64_t address, std::uint64_t place) const {
  constexpr std::uint64_t kNear = 2 * (shared::kMostFollowing + 1);
  const std::uint64_t low = address - std::min(address, kNear), high = address + kNear;
  const bool has_other = claims_.has_place_in(low, std::clamp(place, low, high)) ||
                         claims_.has_place_in(std::clamp(place + 1, low, high), high);
  return !has_other && claims_.is_free(low, high);
}

void FileJumps::add(std::uint64_t address) {
  if (windows_.count(address) != 0) return;
  claims_.add_place(address);
  const Window window = plan_window(flow_, address, claims_);
  const bool is_short = window.kind == WindowKind::short_jump;
  const bool is_far = is_short && !is_alone(window.padding, address);
  if (!is_alone(address, address) || !is_alone(window.begin(), address) || is_far) return;
  take(window);
  std::sort(patched_.begin(), patched_.end());
}

const Window* FileJumps::window_at(std::uint64_t address) const {
  const auto found = windows_.find(address);
  return found == windows_.end() ? nullptr : &found->second;
}

std::uint16_t FileJumps::changed_after(std::uint64_t address) const {
  const std::uint64_t first = address + 1, last = first + shared::kMostFollowing;
  std::uint16_t bits = 0;
  auto at = std::lower_bound(patched_.begin(), patched_.end(), std::pair{address, std::uint64_t{0}});
  if (at != patched_.begin() && std::prev(at)->second > first) --at;  // of the place's prefix_window
  if (at != patched_.end() && at->first == address) ++at;
  for (; at != patched_.end() && at->first < last; ++at)
    for (std::uint64_t byte = std::max(at->first, first); byte < std::min(at->second, last); ++byte)
      bits = static_cast<std::uint16_t>(bits | 1U << (byte - first));
  return bits;
}

}  // namespace uprobe::plan
