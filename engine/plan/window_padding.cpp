// SPDX-License-Identifier: MIT
#include "engine/plan/window_padding.h"

#include "arch/code/scan.h"
#include "arch/shared/text.h"

namespace uprobe::plan {
namespace {

// After the function's end nothing is the function's, so that its jumps need not be known; that they decode must be. After
// an instruction that faults by design a handler of the program may go on.
bool may_follow(const FileFlow& flow, std::uint64_t stop, const arch::Scanned& insn) {
  const std::uint64_t after = stop + insn.length;
  const auto function = flow.function_at(stop);
  if (!function || !flow.is_stop(stop)) return false;
  if (after < function->range.end) return function->is_known() && !insn.is_undefined;
  if (const auto next = flow.function_at(after)) return next->range.begin != after && next->is_known();
  switch (function->trouble) {
    case FlowTrouble::none:
    case FlowTrouble::jump_table:
    case FlowTrouble::landing_pads:
    case FlowTrouble::other_part:
      return true;
    default:
      return false;
  }
}

bool is_usable(const FileFlow& flow, std::uint64_t address) {
  if (!flow.is_padding(address)) return false;
  return !flow.has_patchable_entries() || flow.bytes_at(address)[0] == shared::kBreakpoint;
}

}  // namespace

std::uint64_t padding_end(const FileFlow& flow, std::uint64_t stop, std::uint64_t limit) {
  arch::Scanned insn;
  if (!arch::scan(flow.bytes_at(stop), Addr{stop}, insn)) return stop;
  std::uint64_t at = stop + insn.length;
  if (!may_follow(flow, stop, insn)) return at;
  while (at < limit && is_usable(flow, at) && arch::scan(flow.bytes_at(at), Addr{at}, insn) &&
         !flow.has_arrival(at, at + insn.length))
    at += insn.length;
  return at;
}

}  // namespace uprobe::plan
