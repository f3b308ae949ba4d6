// SPDX-License-Identifier: MIT
#include "engine/base/notes.h"

#include <algorithm>

namespace uprobe {

void Notes::insert(std::string_view line) {
  const std::string_view kept = line.substr(0, kMostBytes);
  if (std::find(lines_.begin(), lines_.end(), kept) != lines_.end()) return;
  if (lines_.size() == kMost)
    ++more_;
  else
    lines_.emplace_back(kept);
}

void Notes::insert(const Notes& other) {
  for (const std::string& line : other.lines_) insert(line);
  more_ += other.more_;
}

std::vector<std::string> Notes::lines() const {
  std::vector<std::string> lines = lines_;
  if (more_ != 0) lines.push_back(std::to_string(more_) + " further messages are not shown");
  return lines;
}

}  // namespace uprobe
