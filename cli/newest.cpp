// SPDX-License-Identifier: MIT
// See newest.h.
#include "cli/newest.h"

#include <algorithm>
#include <utility>

namespace uprobe::cli {

std::string_view NewestLines::without_first_lines(std::string_view lines) {
  while (!has_begun_ && !lines.empty() && (has_names_ || lines.front() == '#')) {
    const std::size_t end = lines.find('\n') + 1;
    first_ += lines.substr(0, end);
    lines.remove_prefix(end);
    has_begun_ = std::exchange(has_names_, false);
  }
  has_begun_ = has_begun_ || !lines.empty();
  return lines;
}

// Whole lines, of the oldest part.
void NewestLines::drop_oldest() {
  std::string& oldest = parts_.front();
  const std::size_t over = bytes_ - limit_;
  const std::size_t end = over >= oldest.size() ? std::string::npos : oldest.find('\n', over - 1);
  const std::size_t dropped = end == std::string::npos ? oldest.size() : end + 1;
  bytes_ -= dropped;
  dropped_ += static_cast<std::uint64_t>(
      std::count(oldest.begin(), oldest.begin() + static_cast<std::ptrdiff_t>(dropped), '\n'));
  if (dropped == oldest.size()) return parts_.pop_front();
  oldest.erase(0, dropped);
}

void NewestLines::add(std::string_view lines) {
  constexpr std::size_t kPart = 64 << 10;
  lines = without_first_lines(lines);
  if (lines.empty()) return;
  if (parts_.empty() || parts_.back().size() + lines.size() > kPart) parts_.emplace_back();
  parts_.back() += lines;
  bytes_ += lines.size();
  while (bytes_ > limit_) drop_oldest();
}

std::string NewestLines::take() {
  std::string all = std::exchange(first_, {});
  for (const std::string& part : parts_) all += part;
  parts_.clear();
  bytes_ = 0;
  return all;
}

}  // namespace uprobe::cli
