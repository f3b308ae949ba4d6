// SPDX-License-Identifier: MIT
#include "engine/process/block_cache.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace uprobe::control {
namespace {

constexpr std::size_t kBlocks = 8, kMappings = 64;  // what is dropped is read again
constexpr std::size_t kBytes = 64 << 20;            // of all blocks together: a process chooses the size of its own

}  // namespace

Result<Block> BlockCache::take(target::Target& target, Addr at) {
  auto stamp = Block::read_stamp(target, at);
  if (!stamp) return stamp.error();
  const auto known = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) {
    return *stamp != 0 && block.stamp() == *stamp && block.address() == at;
  });
  if (known == blocks_.end()) return read(target, at);
  Block block = std::move(*known);
  blocks_.erase(known);
  return block;
}

void BlockCache::keep(Block block) {
  blocks_.push_front(std::move(block));
  std::size_t bytes = 0;
  const auto is_too_much = [&](const Block& one) { return (bytes += one.head().block_bytes) > kBytes; };
  const auto first = std::find_if(blocks_.begin(), blocks_.end(), is_too_much);
  blocks_.erase(first, blocks_.end());
  if (blocks_.size() > kBlocks) blocks_.pop_back();
}

const std::vector<KnownMapping>* BlockCache::mappings(std::uint64_t stamp) const {
  const auto known =
      std::find_if(mappings_.begin(), mappings_.end(), [stamp](const Mappings& m) { return m.stamp == stamp; });
  return stamp == 0 || known == mappings_.end() ? nullptr : &known->list;
}

void BlockCache::keep_mappings(std::uint64_t stamp, std::vector<KnownMapping> mappings) {
  std::erase_if(mappings_, [stamp](const Mappings& m) { return m.stamp == stamp; });
  mappings_.push_front({stamp, std::move(mappings)});
  if (mappings_.size() > kMappings) mappings_.pop_back();
}

Status BlockCache::renew(target::Target& target, Block& block) {
  const auto* known = mappings(block.stamp());
  std::optional<std::vector<KnownMapping>> kept;
  if (known != nullptr) kept = *known;
  RETURN_IF_ERROR(block.renew(target));
  if (kept) keep_mappings(block.stamp(), std::move(*kept));
  return ok();
}

}  // namespace uprobe::control
