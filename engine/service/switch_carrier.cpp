// SPDX-License-Identifier: MIT
#include "engine/service/switch_carrier.h"

#include <algorithm>
#include <atomic>

namespace uprobe::control {
namespace {

std::uint32_t load(std::uint32_t& word) { return std::atomic_ref(word).load(std::memory_order_relaxed); }

}  // namespace

SwitchCarrier::SwitchCarrier(trace::Area& area) : area_(area) {
  if (area_.has_switches()) before_.push_back(state_of(0));
}

std::vector<std::uint32_t> SwitchCarrier::state_of(std::size_t part) const {
  trace::LiveArea& live = area_.live(part);
  std::vector<std::uint32_t> state{load(live.header().tracing)};
  for (std::uint32_t i = 0; i < area_.header().switch_count; ++i) state.push_back(load(live.switches()[i]));
  return state;
}

void SwitchCarrier::put(std::size_t part, std::size_t number, std::uint32_t value) {
  trace::LiveArea& live = area_.live(part);
  std::uint32_t& word = number == 0 ? live.header().tracing : live.switches()[number - 1];
  std::atomic_ref(word).store(value, std::memory_order_relaxed);
}

// A new part began with the switches that the first part had at the last step, or has changed to since. A value that is neither
// of the two is a switch that is on.
void SwitchCarrier::step(const Domains& domains) {
  if (!area_.has_switches()) return;
  const std::size_t parts = std::min(area_.live_count(), domains.count());
  if (before_.size() < parts) before_.resize(parts, before_.empty() ? state_of(0) : before_[0]);
  for (std::size_t part = 0; part < parts; ++part) {
    const std::vector<std::uint32_t> now = state_of(part);
    for (std::size_t i = 0; i < std::min(now.size(), before_[part].size()); ++i) {
      if (now[i] == before_[part][i]) continue;
      before_[part][i] = now[i];
      const std::uint32_t value = now[i] == shared::kSwitchOff ? shared::kSwitchOff : shared::kSwitchOn;
      for (std::size_t other = 0; other < before_.size(); ++other) {
        if (other == part || !domains.may_decide(part, other)) continue;
        put(other, i, value);
        before_[other][i] = value;
      }
    }
  }
}

}  // namespace uprobe::control
