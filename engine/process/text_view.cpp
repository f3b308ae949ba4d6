// SPDX-License-Identifier: MIT
#include "engine/process/text_view.h"

#include <algorithm>
#include <cstring>

namespace uprobe::control {

void TextView::look_ahead(std::span<const Addr> places) {
  constexpr std::size_t kMost = 256;  // beyond it whole pages are the better choice
  constexpr std::uint64_t kBefore = 32, kAfter = 96;
  ahead_.clear();
  if (places.size() > kMost) return;
  for (const Addr place : places) {
    const Addr page = place - place.value % kPage, begin = std::max(page, place - std::min(kBefore, place.value));
    const Addr end = std::min(page + kPage, place + kAfter);
    const bool joins = !ahead_.empty() && begin <= ahead_.back().begin + ahead_.back().bytes.size();
    if (!joins) ahead_.push_back({begin, {}});
    Part& part = ahead_.back();
    part.bytes.resize(std::max<std::size_t>(part.bytes.size(), end - part.begin));
  }
  std::vector<target::ReadPiece> pieces;
  pieces.reserve(ahead_.size());
  for (Part& part : ahead_) pieces.push_back({part.begin, part.bytes});
  if (!target_->read_all(pieces)) ahead_.clear();
}

bool TextView::has_ahead(Addr from, void* to, std::size_t bytes) const {
  const auto next = std::ranges::upper_bound(ahead_, from, {}, &Part::begin);
  if (next == ahead_.begin()) return false;
  const Part& part = *(next - 1);
  const std::uint64_t skip = from - part.begin;
  if (skip > part.bytes.size() || bytes > part.bytes.size() - skip) return false;
  std::memcpy(to, part.bytes.data() + skip, bytes);
  return true;
}

Status TextView::read(Addr from, void* to, std::size_t bytes) {
  if (!ahead_.empty() && has_ahead(from, to, bytes)) return ok();
  const std::uint64_t skip = from.value % kPage;
  const Addr page = from - skip;
  if (bytes > kPage - skip) return target_->read(from, to, bytes);
  if (!has_page_ || page != page_) {
    has_page_ = bool(target_->read(page, bytes_.data(), kPage));
    page_ = page;
    if (!has_page_) return target_->read(from, to, bytes);
  }
  std::memcpy(to, bytes_.data() + skip, bytes);
  return ok();
}

}  // namespace uprobe::control
