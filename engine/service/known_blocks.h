// SPDX-License-Identifier: MIT
// Where the process blocks of a session are, as far as some process still has them: each execve brings another one.
#pragma once

#include <cstddef>
#include <functional>
#include <set>

#include "engine/base/address.h"

namespace uprobe::control {

class KnownBlocks {
 public:
  // `in_use` tells which blocks the processes of the session have now. It is asked before the number has doubled, and not for a few.
  explicit KnownBlocks(std::function<std::set<Addr>()> in_use) : in_use_(std::move(in_use)) {}

  void add(Addr block) {
    if (all_.size() >= most_) forget();
    all_.insert(block);
  }
  bool contains(Addr block) const { return all_.contains(block); }
  const std::set<Addr>& all() const { return all_; }

  static constexpr std::size_t kFew = 256;

 private:
  void forget();

  std::function<std::set<Addr>()> in_use_;
  std::set<Addr> all_;
  std::size_t most_ = kFew;
};

}  // namespace uprobe::control
