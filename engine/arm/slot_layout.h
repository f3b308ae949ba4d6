// SPDX-License-Identifier: MIT
// What a point needs in a process besides its text: its slot with the displaced copy and, for a jump, a body that records for
// all points with the same event program (engine/shared/trampoline.h). Both go into islands near the code.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/arm/probe_set.h"
#include "engine/plan/window.h"
#include "engine/process/block.h"
#include "engine/trace/area.h"

namespace uprobe::control {

// A point that is about to be armed.
struct Pending {
  NewPoint point;                  // address, instruction, consumers and the like; place_all sets the rest
  std::vector<std::uint8_t> code;  // the displaced bytes: the instruction, or the whole window
  const PlannedPoint* planned = nullptr;
  std::optional<std::uint32_t> known;    // its entry in the block, if it was armed before
  const plan::Window* window = nullptr;  // for a jump; null: a breakpoint
  bool is_future = false;                // the jump is to be written later: see future_jumps.h
  std::optional<NewPoint> long_jump;     // of a short jump: the jump in the padding; place_all sets its target
  std::optional<std::uint32_t> known_long_jump;
  std::unique_ptr<Pending>
      prefix_window;  // with point, code, window and known: the instructions before the place, where the jump begins
};

struct PlaceContext {
  target::Target& target;
  Block& block;
  const trace::Area* area;           // null: bodies do not record
  bool has_stubs;                    // functions return by stubs, now or later
  const ProbeSet* probes = nullptr;  // with an area
  Addr begin, end;                   // the code; everything has to be within reach of it
  std::function<void(const Pending&, const std::string& why)> refuse;
};

// Finds room, makes the bytes and writes them. A point that cannot be placed is refused and leaves the list; a jump whose slot
// is out of reach becomes a breakpoint. The points are added to the block in the order of the list, because slots contain their
// indices. Fails when the process cannot be written or its tables are full.
Status place_all(const PlaceContext& context, std::vector<Pending>& pending);

}  // namespace uprobe::control
