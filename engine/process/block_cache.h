// SPDX-License-Identifier: MIT
// Caches the blocks and mappings of processes that the tool has armed, so that the cost of a request depends on what has
// changed and not on the size of the tables.
//
// The key is the stamp of the process block. A forked child has its parent's stamp, tables and text, so cached facts hold for
// both until one of them changes, which gives that one a new stamp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "engine/process/block.h"
#include "engine/target/maps.h"

namespace uprobe::control {

// A mapping that was looked at: every planned point in it is armed, refused or waiting.
struct KnownMapping {
  Addr begin, end;
  std::uint64_t offset = 0, device = 0, inode = 0;
  Addr sentinel;       // an armed address in it, 0: none
  bool waits = false;  // an IFUNC in it has not chosen yet
};

inline bool is_same(const KnownMapping& known, const target::Mapping& m) {
  return known.begin == m.begin && known.end == m.end && known.offset == m.offset && known.device == m.device &&
         known.inode == m.inode;
}

class BlockCache {
 public:
  // From now on blocks may have room for so many points, or for as many as an earlier call has named: the room is the tool's choice when a
  // process comes, and no process may claim a larger one later.
  void allow(std::size_t points) { most_points_ = std::max(most_points_, points); }
  // The block at `at`, read.
  Result<Block> read(target::Target& target, Addr at) const { return Block::read(target, at, most_points_); }
  // The same, from the cache where it is there.
  Result<Block> take(target::Target& target, Addr at);
  // Returns the block to the cache. Call it when nothing failed.
  void keep(Block block);

  // By address; null: no mappings are cached for this stamp. Valid until the next keep_mappings().
  const std::vector<KnownMapping>* mappings(std::uint64_t stamp) const;
  void keep_mappings(std::uint64_t stamp, std::vector<KnownMapping> mappings);
  // Call before a change of the block that leaves the cached mappings valid: they go with its new stamp.
  Status renew(target::Target& target, Block& block);

 private:
  struct Mappings {
    std::uint64_t stamp;
    std::vector<KnownMapping> list;
  };
  std::size_t most_points_ = 0;
  std::deque<Block> blocks_;  // latest first
  std::deque<Mappings> mappings_;
};

}  // namespace uprobe::control
