// SPDX-License-Identifier: MIT
#include "engine/plan/exit_place.h"

#include <algorithm>
#include <optional>

#include "arch/code/scan.h"
#include "arch/code/stack_patterns.h"
#include "engine/plan/window.h"

namespace uprobe::plan {
namespace {

using shared::Reg;

constexpr RegisterSet bit(Reg reg) { return RegisterSet{1} << static_cast<unsigned>(reg); }

// How an instruction in front of a return changes the registers.
struct Change {
  std::uint32_t moves;  // the stack pointer, up
  RegisterSet others;
  std::optional<std::size_t> restored = {};  // index in kKeptRegisters
};

std::optional<std::size_t> kept_index(Reg reg) {
  const auto found = std::find(std::begin(shared::kKeptRegisters), std::end(shared::kKeptRegisters), reg);
  if (found == std::end(shared::kKeptRegisters)) return std::nullopt;
  return static_cast<std::size_t>(found - std::begin(shared::kKeptRegisters));
}

std::optional<Change> change_of(arch::Bytes code) {
  const auto release = arch::stack_release(code);
  if (!release) return std::nullopt;
  return Change{release->moves, bit(release->changed), kept_index(release->changed)};
}

// In front of a place from which `restored` holds, an instruction is added: all words move up, and its own is the first. Nothing
// where a word is too far.
std::optional<std::uint32_t> with(std::uint32_t restored, const Change& change) {
  std::uint32_t made = 0;
  for (unsigned i = 0; i < std::size(shared::kKeptRegisters); ++i) {
    const std::uint32_t later = shared::restored_at(restored, i);
    const bool is_first = later == 0 && change.restored == i;
    const std::uint32_t word = later != 0 ? later + change.moves / 8 : is_first ? 1 : 0;
    if (word > shared::kMostRestored || (later != 0 && change.moves % 8 != 0)) return std::nullopt;
    made |= word << (shared::kRestoredBits * i);
  }
  return made;
}

}  // namespace

Exit place_for(const FileFlow& flow, const Exit& exit, RegisterSet wanted) {
  constexpr std::uint32_t kMostMoved = 0x7fff;  // of shared::Consumer::lead, without doubt
  const WindowClaims none;
  const auto has_jump = [&](std::uint64_t address) {
    const Window window = plan_window(flow, address, none);
    return window.is_jump() &&
           window.kind != WindowKind::prefix_window;  // what is in front is taken by the prefix_window, at a price
  };
  if (exit.is_jump || has_jump(exit.address)) return exit;
  Exit place = exit;
  std::uint32_t moved = 0;
  while (!flow.is_arrival(place.address)) {
    const auto before = flow.last_start(place.address - arch::kMaxInsnBytes, place.address);
    arch::Scanned insn;
    if (!before || !arch::scan(flow.bytes_at(*before), Addr{*before}, insn)) break;
    if (*before + insn.length != place.address) break;
    const auto change = change_of(flow.bytes_at(*before).first(insn.length));
    if (!change || (change->others & wanted) != 0) break;
    const auto restored = with(place.restored, *change);
    moved += change->moves;
    if (moved > kMostMoved || !restored) break;
    place.restored = *restored;
    place.address = *before;
    place.lead = static_cast<std::uint16_t>(moved);
    if (has_jump(place.address)) return place;
  }
  return exit;
}

}  // namespace uprobe::plan
