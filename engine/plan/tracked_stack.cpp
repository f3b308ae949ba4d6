// SPDX-License-Identifier: MIT
#include "engine/plan/tracked_stack.h"

namespace uprobe::plan {
namespace {

using arch::StackUse;

std::optional<std::int64_t> behind(const StackUse::Register& change, std::optional<std::int64_t> own,
                                   const TrackedStack& before) {
  const auto moved = [&](std::optional<std::int64_t> from) {
    return from ? std::optional<std::int64_t>(*from + change.distance) : std::nullopt;
  };
  switch (change.becomes) {
    case StackUse::Becomes::same:
      return own;
    case StackUse::Becomes::from_rsp:
      return moved(before.rsp);
    case StackUse::Becomes::from_rbp:
      return moved(before.rbp);
    default:
      return std::nullopt;
  }
}

}  // namespace

TrackedStack stack_behind(const StackUse& use, const TrackedStack& before) {
  return {behind(use.rsp, before.rsp, before), behind(use.rbp, before.rbp, before)};
}

TrackedStack either(const TrackedStack& a, const TrackedStack& b) {
  return {a.rsp == b.rsp ? a.rsp : std::nullopt, a.rbp == b.rbp ? a.rbp : std::nullopt};
}

bool is_return_address(const arch::StackPlace& place, const TrackedStack& stack) {
  const auto base = place.by_frame ? stack.rbp : stack.rsp;
  if (!base) return false;
  const std::int64_t begin = *base + place.distance;
  return place.bytes == 0 ? begin == 0 : begin < 8 && begin + place.bytes > 0;
}

}  // namespace uprobe::plan
