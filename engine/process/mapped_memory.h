// SPDX-License-Identifier: MIT
// Memory that is mapped in a target for a while.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/target/target.h"

namespace uprobe::control {

inline constexpr std::uint64_t kScratchBytes = 8192;

// The destructor unmaps the memory, unless it is kept: the target's address space may be limited.
class MappedMemory {
 public:
  explicit MappedMemory(target::Target& target) : target_(target) {}
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory();

  // `wish`: the address, if it is free.
  Result<Addr> map(std::uint64_t bytes, int protection, int flags, const std::string& what, Addr wish = {});
  // Several at once. On an error none stays mapped.
  struct Wanted {
    std::uint64_t bytes;
    int protection, flags;
    std::string what;
    Addr wish = {};
  };
  Result<std::vector<Addr>> map_all(std::span<const Wanted> wanted);
  Result<Addr> map_scratch(std::uint64_t bytes = kScratchBytes);
  void keep() { places_.clear(); }

 private:
  target::Target& target_;
  std::vector<std::pair<Addr, std::uint64_t>> places_;
};

}  // namespace uprobe::control
