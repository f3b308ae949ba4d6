// SPDX-License-Identifier: MIT
// Removes probes from code that has proved to be a restartable sequence (rseq). The kernel aborts a sequence that a breakpoint
// interrupts, so the thread would come back to the breakpoint for ever; and a jump out of a sequence silently breaks its
// atomicity. The file did not show the sequence (engine/elf/rseq_sections.h), so it is searched for in the process.
//
// The barred ranges are in the process block: fork copies it together with the text, and execve ends both. If the first guess
// was too small the breakpoint is still there, a thread comes again, and the next step takes a larger range. A thread that
// trapped before its breakpoint was removed comes once more, too; the number of threads limits how often that happens.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "engine/arm/arm_state.h"
#include "engine/patch/sequence_search.h"
#include "engine/process/block.h"
#include "engine/target/target.h"

namespace uprobe::control {

// Why nothing may be probed in [begin, end) of the mapping; null: it may be probed.
const char* reason_barred(const Block& block, const target::Mapping& m, Addr begin, Addr end);
// The same for a point. Internal points are never in a restartable sequence.
const char* reason_barred(const Block& block, const PlannedPoint& point, const target::Mapping& m);

class Barring {
 public:
  using ThreadCount = std::function<std::size_t()>;
  // All must outlive it. `place`: as the thread reported it; `threads`: how many threads the process has now.
  Barring(ArmState& state, target::Target& target, Block& block, const AbortPlace& place, const ThreadCount& threads)
      : state_(state), target_(target), block_(block), place_(place), threads_(threads) {}

  // Takes the next step. Code::damaged where no code is at the place.
  Status run();

 private:
  Status next_step();
  Status take_from(shared::BarredStep step);
  Status take(shared::BarredStep step, const std::set<std::uint32_t>& probes);
  std::vector<CodeRange> ranges_of(shared::BarredStep step);
  void note(shared::BarredStep step, const std::set<std::uint16_t>& events);

  ArmState& state_;
  target::Target& target_;
  Block& block_;
  const AbortPlace place_;
  const ThreadCount& threads_;
  std::vector<target::Mapping> maps_;
  const target::Mapping* code_ = nullptr;  // contains the abort handler
};

}  // namespace uprobe::control
