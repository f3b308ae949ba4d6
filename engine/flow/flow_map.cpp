// SPDX-License-Identifier: MIT
#include "engine/flow/flow_map.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace uprobe::plan {

std::optional<std::uint64_t> AddressBits::next(std::uint64_t from, std::uint64_t limit) const {
  from = std::max(from, begin_);
  limit = std::min(limit, end_);
  while (from < limit) {
    const std::uint64_t bit = from - begin_;
    const std::uint64_t rest = words_[bit / 64] >> bit % 64;
    if (rest != 0) {
      const std::uint64_t found = from + static_cast<unsigned>(std::countr_zero(rest));
      return found < limit ? std::optional(found) : std::nullopt;
    }
    from += 64 - bit % 64;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> AddressBits::last(std::uint64_t from, std::uint64_t limit) const {
  from = std::max(from, begin_);
  limit = std::min(limit, end_);
  while (from < limit) {
    const std::uint64_t bit = limit - 1 - begin_;
    const std::uint64_t rest = words_[bit / 64] << (63 - bit % 64);
    if (rest != 0) {
      const std::uint64_t found = limit - 1 - static_cast<unsigned>(std::countl_zero(rest));
      return found >= from ? std::optional(found) : std::nullopt;
    }
    limit = begin_ + bit - bit % 64;
  }
  return std::nullopt;
}

void AddressBits::add(const AddressBits& others) {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= others.words_[i];
}

bool AddressBits::unpack(facts::Unpacker& from) {
  if (!from.take(words_) || words_.size() != word_count(begin_, last_)) return false;
  end_ = last_;
  return true;
}

FlowMap::FlowMap(const elf::ElfFile& file, Bits how) {
  const auto bytes = file.bytes();
  // Segments may show the same bytes, many times over in a file that is made to cost memory: of such a one nothing is
  // known.
  std::uint64_t mapped = 0;
  for (const elf::Segment& segment : file.segments()) mapped += segment.file_bytes;
  if (mapped > 2 * bytes.size()) return;
  for (const elf::Segment& segment : file.segments()) {
    const std::uint64_t size = std::min(segment.file_bytes, bytes.size() - std::min(segment.offset, bytes.size()));
    if (size == 0) continue;
    const std::uint64_t begin = segment.address, end = segment.address + size;
    SegmentMap map{.segment = segment,
                   .bytes = bytes.subspan(segment.offset, size),
                   .named = AddressBits(begin, end, how == Bits::clear)};
    if (segment.executable)
      for (AddressBits* bits : {&map.jumped, &map.entered, &map.starts, &map.stops, &map.padding})
        *bits = AddressBits(begin, end, how == Bits::clear);
    segments_.push_back(std::move(map));
  }
}

const SegmentMap* FlowMap::at(std::uint64_t address) const {
  const auto after = std::upper_bound(segments_.begin(), segments_.end(), address,
                                      [](std::uint64_t a, const SegmentMap& map) { return a < map.segment.address; });
  if (after == segments_.begin()) return nullptr;
  const SegmentMap& map = *(after - 1);
  return map.holds(address) ? &map : nullptr;
}

SegmentMap* FlowMap::at(std::uint64_t address) { return const_cast<SegmentMap*>(std::as_const(*this).at(address)); }

const SegmentMap* FlowMap::code_at(std::uint64_t address) const {
  const SegmentMap* map = at(address);
  return map != nullptr && map->segment.executable ? map : nullptr;
}

void FlowMap::name(std::uint64_t address) {
  if (SegmentMap* map = at(address)) map->named.set(address);
}

void FlowMap::enter(std::uint64_t address) {
  if (SegmentMap* map = at(address)) map->entered.set(address);
}

void FlowMap::add(const FlowMap& other) {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    SegmentMap& map = segments_[i];
    const SegmentMap& its = other.segments_[i];
    map.named.add(its.named), map.jumped.add(its.jumped), map.entered.add(its.entered);
    map.starts.add(its.starts), map.stops.add(its.stops), map.padding.add(its.padding);
  }
}

std::span<const std::uint8_t> FlowMap::bytes_at(std::uint64_t address) const {
  const SegmentMap* map = at(address);
  return map == nullptr ? std::span<const std::uint8_t>() : map->bytes.subspan(address - map->segment.address);
}

std::size_t FlowMap::bytes() const {
  std::size_t total = 0;
  for (const SegmentMap& map : segments_)
    for (const AddressBits* bits : {&map.named, &map.jumped, &map.entered, &map.starts, &map.stops, &map.padding})
      total += bits->bytes();
  return total;
}

namespace {

// Of one segment, in one order.
template <class Map>
auto sets_of(Map& map) {
  return std::array{&map.named, &map.jumped, &map.entered, &map.starts, &map.stops, &map.padding};
}

}  // namespace

void FlowMap::pack(facts::Packer& to) const {
  for (const SegmentMap& segment : segments_)
    for (const AddressBits* bits : sets_of(segment)) bits->pack(to);
}

bool FlowMap::unpack(facts::Unpacker& from) {
  return std::ranges::all_of(segments_, [&](SegmentMap& segment) {
    return std::ranges::all_of(sets_of(segment), [&](AddressBits* bits) { return bits->unpack(from); });
  });
}

}  // namespace uprobe::plan
