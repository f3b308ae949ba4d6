// SPDX-License-Identifier: MIT
// What a point needs in a process besides its text: its slot with the displaced copy, and, if the point is to be a jump, a body
// that records for all points with the same event program (engine/shared/trampoline.h). Both go into islands near the code.
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

// A point on its way into a process.
struct Pending {
  NewPoint point;                  // address, instruction, consumers and the like; place_all fills in the rest
  std::vector<std::uint8_t> code;  // what is displaced: the instruction, or all of the window
  const PlannedPoint* planned = nullptr;
  std::optional<std::uint32_t> known;    // an entry of the block to be armed again
  const plan::Window* window = nullptr;  // it is to be a jump; null: a breakpoint
  std::optional<NewPoint> long_jump;  // of a short jump: what goes into the padding; place_all fills in where it leads
  std::optional<std::uint32_t> known_long_jump;
  std::unique_ptr<Pending>
      prefix_window;  // with point, code, window and known: what stands in front of the place and leads to it
};

struct PlaceContext {
  target::Target& target;
  Block& block;
  const trace::Area* area;  // null: bodies do not record by themselves
  bool has_stubs;           // functions return by stubs, now or later
  Addr begin, end;          // the code; everything has to be within reach of it
  std::function<void(const Pending&, const std::string& why)> refuse;
};

// Finds room, makes the bytes and writes them; what cannot be placed is refused and leaves the list. Where there is no way to
// a slot for jumps, the point becomes a breakpoint. The points are added to the block in the order of the list: slots know
// their indices by it. Fails when the process cannot be written or its tables are full.
Status place_all(const PlaceContext& context, std::vector<Pending>& pending);

}  // namespace uprobe::control
