// SPDX-License-Identifier: MIT
// What the tool remembers of the processes it has armed, so that a request costs what has changed and not what there is.
//
// The key is the stamp of the process block. A forked child has its parent's stamp with its parent's tables and text, so
// what is known of the one holds for the other until one of them is changed, which gives it a stamp of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/process/block.h"
#include "engine/target/maps.h"

namespace uprobe::control {

// A mapping that has been looked at: every planned point in it is armed or refused, or waits.
struct KnownMapping {
  Addr begin, end;
  std::uint64_t offset = 0, device = 0, inode = 0;
  Addr sentinel;       // of a breakpoint in it, 0: none
  bool waits = false;  // an IFUNC in it has not chosen yet
};

inline bool is_same(const KnownMapping& known, const target::Mapping& m) {
  return known.begin == m.begin && known.end == m.end && known.offset == m.offset && known.device == m.device &&
         known.inode == m.inode;
}

class BlockCache {
 public:
  // The block at `at`, as remembered or read.
  Result<Block> take(target::Target& target, Addr at);
  // Gives it back when nothing failed.
  void keep(Block block);

  // By address; null: nothing is known of a block with this stamp. Good until the next keep_mappings().
  const std::vector<KnownMapping>* mappings(std::uint64_t stamp) const;
  void keep_mappings(std::uint64_t stamp, std::vector<KnownMapping> mappings);

 private:
  struct Mappings {
    std::uint64_t stamp;
    std::vector<KnownMapping> list;
  };
  std::deque<Block> blocks_;  // latest first
  std::deque<Mappings> mappings_;
};

}  // namespace uprobe::control
