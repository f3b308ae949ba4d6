// SPDX-License-Identifier: MIT
#include "engine/plan/tracked_stack.h"

namespace uprobe::plan {
namespace {

using arch::StackUse;

std::optional<std::int64_t> after(const StackUse::Register& change, std::optional<std::int64_t> own,
                                  const TrackedStack& before) {
  const auto moved = [&](std::optional<std::int64_t> from) {
    return from ? std::optional<std::int64_t>(*from + change.distance) : std::nullopt;
  };
  switch (change.becomes) {
    case StackUse::Becomes::same:
      return own;
    case StackUse::Becomes::from_sp:
      return moved(before.sp);
    case StackUse::Becomes::from_frame:
      return moved(before.frame);
    default:
      return std::nullopt;
  }
}

}  // namespace

TrackedStack stack_after(const StackUse& use, const TrackedStack& before) {
  return {after(use.sp, before.sp, before), after(use.frame, before.frame, before)};
}

TrackedStack either(const TrackedStack& a, const TrackedStack& b) {
  return {a.sp == b.sp ? a.sp : std::nullopt, a.frame == b.frame ? a.frame : std::nullopt};
}

bool is_return_address(const arch::StackPlace& place, const TrackedStack& stack) {
  const auto base = place.by_frame ? stack.frame : stack.sp;
  if (!base) return false;
  const std::int64_t begin = *base + place.distance;
  return place.bytes == 0 ? begin == 0 : begin < 8 && begin + place.bytes > 0;
}

}  // namespace uprobe::plan
