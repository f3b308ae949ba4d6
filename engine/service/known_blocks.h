// SPDX-License-Identifier: MIT
// The addresses of the process blocks of a session. Each execve brings a new one; blocks that no process has are forgotten.
#pragma once

#include <cstddef>
#include <functional>
#include <set>

#include "engine/base/address.h"

namespace uprobe::control {

class KnownBlocks {
 public:
  // `in_use` returns the blocks that the session's processes have now. It is called once per doubling of the number, from kFew
  // on.
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
