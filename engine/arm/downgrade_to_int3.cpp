// SPDX-License-Identifier: MIT
#include <algorithm>

#include "engine/arm/live_points.h"
#include "engine/arm/process_arming.h"
#include "engine/arm/slot_layout.h"
#include "engine/patch/patch.h"

namespace uprobe::control {
namespace {

using shared::kBreakpoint;

Pending breakpoint_at(const shared::Point& point, const shared::Undo& undo, std::uint32_t index) {
  Pending pending{.point = {}, .code = {undo.original, undo.original + point.insn_bytes}, .known = index};
  pending.point.address = Addr{point.address};
  pending.point.file_bias = point.file_bias;
  pending.point.role = static_cast<shared::PointRole>(point.role);
  pending.point.insn = pending.code;
  pending.point.following.assign(undo.original + 1, undo.original + 1 + point.following_bytes);
  pending.point.following_varies = point.following_varies;
  pending.point.consumers = point.consumer;
  return pending;
}

bool can_be_breakpoint(const shared::Point& point) {
  return shared::is_armed_jump(point) && point.insn_bytes <= sizeof(shared::Undo::original);
}

Patch to_breakpoint(target::Target& target, const shared::Point& point, const shared::Undo& undo) {
  Patch patch = patch_back_now(target, point, undo);
  patch.after[0] = kBreakpoint;
  return patch;
}

Patch first_byte(Addr at, std::uint8_t before, std::uint8_t after) {
  Patch patch{.at = at, .size = 1};
  patch.before[0] = before, patch.after[0] = after;
  return patch;
}

// Ends a prefix window whose beginning is a breakpoint by now, and whose place has a copy: sets a breakpoint at the place and
// removes the one at the beginning. Until then threads run through the prefix window's copy, which leads past the place.
Status end_prefix_window(target::Target& target, Block& block, Serializer& serializer, std::uint32_t prefix_window,
                         const Pending& place) {
  const std::uint8_t original = block.undo()[*place.known].original[0];
  RETURN_IF_ERROR(block.set_point(target, *place.known, place.point));
  const Patch comes = first_byte(place.point.address, original, kBreakpoint);
  if (patch_running(target, {&comes, 1}, serializer).front() != Patched::done) return ok();
  const Addr begin{block.points()[prefix_window].address};
  const Patch goes = first_byte(begin, kBreakpoint, block.undo()[prefix_window].original[0]);
  if (patch_running(target, {&goes, 1}, serializer).front() != Patched::done) return ok();
  return block.set_state(target, prefix_window, shared::PointState::disarmed);
}

}  // namespace

// The text first: until a point has its new copy, threads that trap there use the old one, which is still right. For a prefix
// window the breakpoint goes to the place to which the window leads.
Status make_breakpoints(target::Target& target, Block& block, const Changed& reach,
                        std::span<const std::uint32_t> jumps) {
  std::vector<Pending> pending;
  std::vector<Patch> patches;
  for (const std::uint32_t jump : jumps) {
    const bool leads_on = shared::is_prefix_window(block.points()[jump]);
    const std::uint32_t i = leads_on ? block.after_prefix_window(jump).value_or(jump) : jump;
    pending.push_back(breakpoint_at(block.points()[i], block.undo()[i], i));
  }
  const PlaceContext context{.target = target,
                             .block = block,
                             .area = nullptr,
                             .has_stubs = false,
                             .begin = reach.begin,
                             .end = reach.end,
                             .refuse = [](const Pending&, const std::string&) {}};
  RETURN_IF_ERROR(place_all(context, pending));
  RETURN_IF_ERROR(block.write_head(target));
  for (const Pending& p : pending) {
    const std::uint32_t i = block.leads_to(*p.known);
    patches.push_back(to_breakpoint(target, block.points()[i], block.undo()[i]));
  }
  ProcessSerializer serializer(target.pid());
  const std::vector<Patched> outcomes = patch_running(target, patches, serializer);
  for (std::size_t i = 0; i < pending.size(); ++i) {
    if (outcomes[i] != Patched::done) continue;
    const std::uint32_t place = *pending[i].known, from = block.leads_to(place);
    const Status s = from == place ? block.set_point(target, place, pending[i].point)
                                   : end_prefix_window(target, block, serializer, from, pending[i]);
    if (!s) return s;
  }
  return ok();
}

Status take_jumps(ArmState& state, target::Target& target, Addr at, const Changed& range) {
  auto block = state.known.take(target, at);
  if (!block) return block.error();
  std::vector<std::uint32_t> jumps = block->points_in(range.begin, range.end);
  std::erase_if(jumps, [&](std::uint32_t i) { return !can_be_breakpoint(block->points()[i]); });
  if (jumps.empty()) return ok();
  RETURN_IF_ERROR(state.known.renew(target, *block));
  RETURN_IF_ERROR(make_breakpoints(target, *block, range, jumps));
  state.known.keep(block.take());
  return ok();
}

}  // namespace uprobe::control
