// SPDX-License-Identifier: MIT
// /proc/PID/maps as data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/address.h"

namespace uprobe::target {

struct Mapping {
  Addr begin, end;
  bool readable = false, writable = false, executable = false, shared = false;
  std::uint64_t offset = 0;
  std::uint64_t device = 0, inode = 0;  // as printed: not the numbers of stat() on overlayfs and btrfs
  std::string path;                     // "[stack]", "/bin/zsh", "/x (deleted)", empty for anonymous memory

  bool is_file() const { return !path.empty() && path[0] == '/'; }
};

// Lines that are not understood are left out.
std::vector<Mapping> parse_maps(std::string_view text);

// The one that holds an address, of a list as parse_maps gives it; null: none.
const Mapping* mapping_at(const std::vector<Mapping>& maps, Addr address);

// Where `bytes` of address space can be mapped so that every byte of [begin, end) is within rel32 reach of it. Nearest
// first; never right above the heap or a program's data (the break grows there), never right below a stack.
std::vector<Addr> free_places_near(const std::vector<Mapping>& maps, Addr begin, Addr end, std::uint64_t bytes);

// The mapping that begins there, without parsing the lines of the others; nothing: there is none.
std::optional<Mapping> mapping_beginning_at(std::string_view text, Addr begin);

}  // namespace uprobe::target
