// SPDX-License-Identifier: MIT
#include "engine/patch/tier_count.h"

#include "engine/process/text_view.h"

namespace uprobe::control {
namespace {

std::size_t TierCount::*tier_of(TextView& text, const Block& block, std::uint32_t index) {
  const shared::Point& point = block.points()[index];
  if (point.state == static_cast<std::uint32_t>(shared::PointState::watched)) return &TierCount::hardware;
  if (point.state != static_cast<std::uint32_t>(shared::PointState::armed)) return nullptr;
  std::uint8_t now = 0;
  if (!text.read(Addr{block.points()[block.leads_to(index)].address}, &now, 1)) return nullptr;
  return now == shared::kBreakpoint ? &TierCount::breakpoints : &TierCount::jumps;
}

void append(std::string& text, std::size_t places, bool is_only, const char* tier) {
  if (places == 0) return;
  text += (text.empty() ? "" : ", ") + (is_only ? std::string() : std::to_string(places) + " ") + tier;
}

}  // namespace

Status count_tiers(target::Target& target, Addr at, TierCounts& counts) {
  const auto block = Block::read(target, at);
  if (!block) return block.error();
  TextView text(target);
  for (std::uint32_t i = 0; i < block->points().size(); ++i) {
    const auto tier = block->points()[i].consumer != 0 ? tier_of(text, *block, i) : nullptr;
    if (tier == nullptr) continue;
    for (const shared::Consumer& consumer : block->list_of(i)) ++(counts[consumer.event].*tier);
  }
  return ok();
}

std::string describe(const TierCount& count, const std::string& why) {
  const std::size_t all = count.jumps + count.breakpoints + count.hardware;
  if (all == 0) return "not armed";
  std::string text;
  append(text, count.jumps, count.jumps == all, "jump");
  append(text, count.hardware, count.hardware == all, "hardware breakpoint");
  append(text, count.breakpoints, count.breakpoints == all, "int3");
  return text + (count.breakpoints == 0 || why.empty() ? "" : ": " + why);
}

}  // namespace uprobe::control
