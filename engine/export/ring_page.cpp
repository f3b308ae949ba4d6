// SPDX-License-Identifier: MIT
#include "engine/export/ring_page.h"

#include <cstring>

namespace uprobe::format {

namespace {

constexpr std::uint32_t kTimeBits = 27, kTypeBits = 5, kTimeExtend = 30;
constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << kTimeBits) - 1, kMostTime = (std::uint64_t{1} << 59) - 1;
constexpr std::size_t kWord = 4, kMostShort = 28 * kWord;
// At the end of a page there is room for the number of lost records.
constexpr std::size_t kCountBytes = 8;
constexpr std::uint64_t kHasLost = std::uint64_t{1} << 31, kHasCount = std::uint64_t{1} << 30;

std::uint32_t head(std::uint32_t type, std::uint64_t time) {
  return static_cast<std::uint32_t>((time & kTimeMask) << kTypeBits) | type;
}

}  // namespace

template <class T>
void RingPage::put(T value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

bool RingPage::add(std::uint64_t ns, std::string_view record) {
  constexpr std::size_t kMostHeads = 4 * kWord;  // a time that is long, a length
  if (bytes_.empty()) {
    put(ns);
    put(std::uint64_t{0});
    last_ = ns;
  }
  const std::size_t padded = (record.size() + kWord - 1) / kWord * kWord;
  if (bytes_.size() + kMostHeads + padded + kCountBytes > kBytes || ns < last_ || ns - last_ > kMostTime) return false;
  const std::uint64_t time = ns - last_;
  last_ = ns;
  if (time > kTimeMask) {
    put(head(kTimeExtend, time));
    put(static_cast<std::uint32_t>(time >> kTimeBits));
  }
  const bool is_short = padded <= kMostShort && padded != 0;
  put(head(is_short ? static_cast<std::uint32_t>(padded / kWord) : 0, time > kTimeMask ? 0 : time));
  if (!is_short) put(static_cast<std::uint32_t>(padded + kWord));
  bytes_ += record;
  bytes_.append(padded - record.size(), '\0');
  return true;
}

std::string_view RingPage::finish(std::uint64_t lost) {
  std::uint64_t commit = bytes_.size() - kHeadBytes;
  if (lost != 0) {
    commit |= kHasLost | kHasCount;
    put(lost);
  }
  std::memcpy(bytes_.data() + sizeof(std::uint64_t), &commit, sizeof commit);
  return bytes_;
}

}  // namespace uprobe::format
