// SPDX-License-Identifier: MIT
// Where the threads of a held process may go on in code: what must not lie in the middle of a jump when they do.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/target/target.h"

namespace uprobe::control {

class LiveCodeAddresses {
 public:
  // `maps`: the process's. Not held, or not to be read: it may go on anywhere.
  static LiveCodeAddresses of(target::Target& process, const std::vector<target::Mapping>& maps);

  // In [begin, end): an instruction pointer, or a word of a stack, as signal frames and return addresses are.
  bool has_in(Addr begin, Addr end) const;

 private:
  void add(std::uint64_t word) {
    if (is_code(word)) kept_.push_back(word);
  }
  void add_stack(target::Target& process, const std::vector<target::Mapping>& maps, Addr sp);
  bool is_code(std::uint64_t word) const;

  std::vector<Addr> code_;  // begin and end of executable mappings, ascending
  std::vector<std::uint64_t> kept_;
  std::vector<std::uint64_t> words_;  // of a stack
  bool is_known_ = true;
};

}  // namespace uprobe::control
