// SPDX-License-Identifier: MIT
// The jumps of one file: the windows of all its probes, chosen together, and what each place sees of its neighbours'.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/plan/window.h"

namespace uprobe::plan {

class FileJumps {
 public:
  // Link-time addresses: `wanted` of the probes, `others` where breakpoints stand in any case, `lesser` where a jump is wanted that
  // takes no room from a probe. The flow must outlive it.
  FileJumps(const FileFlow& flow, std::vector<std::uint64_t> wanted, std::span<const std::uint64_t> others,
            std::span<const std::uint64_t> lesser = {});

  const FileFlow& flow() const { return flow_; }
  // A place that is wanted later (what an IFUNC has chosen). It gets no window where another place is so near that it would
  // have had to know.
  void add(std::uint64_t address);

  // Null: no window is wanted there.
  const Window* window_at(std::uint64_t address) const;
  // Bit i: the byte i + 1 after the address is part of a jump that is or was somewhere else than at the address.
  std::uint16_t changed_after(std::uint64_t address) const;

 private:
  bool is_alone(std::uint64_t address, std::uint64_t place) const;
  void take(const Window& window);
  void patch(std::uint64_t begin, unsigned bytes) { patched_.emplace_back(begin, begin + bytes); }

  const FileFlow& flow_;
  WindowClaims claims_;
  std::map<std::uint64_t, Window> windows_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> patched_;  // [begin, end) of the jumps, by address, disjoint
};

}  // namespace uprobe::plan
