// SPDX-License-Identifier: MIT
// Copies what a trigger switches on or off in one trust domain to the domains of equal or less privilege.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/service/domains.h"
#include "engine/trace/area.h"

namespace uprobe::control {

class SwitchCarrier {
 public:
  // Construct it before any process of the session runs: a switch may change before the first step.
  explicit SwitchCarrier(trace::Area& area);
  // Compares the switches with their state at the last step.
  void step(const Domains& domains);

 private:
  std::vector<std::uint32_t> state_of(std::size_t part) const;
  void put(std::size_t part, std::size_t number, std::uint32_t value);

  trace::Area& area_;
  std::vector<std::vector<std::uint32_t>> before_;  // per part: the session's switch, then those of the events
};

}  // namespace uprobe::control
