// SPDX-License-Identifier: MIT
// Which bytes a jump may take at a probe's place: the window. Pure: decides, writes nothing.
//
// A jump needs five bytes, an instruction often has fewer. What follows may be taken too where it is certain that nothing
// arrives there but from the instruction before; and the instructions before, if all paths to the place lead
// through them. Unknown means no: then the place keeps its breakpoint, with the reason.
// A probe at launch can use every window. In a running program a thread may stand inside one of several instructions or
// have kept an address there in a signal frame: the tool checks before it writes such a window.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "arch/code/window.h"
#include "engine/flow/flow.h"
#include "engine/flow/sparse_set.h"
#include "engine/shared/process_block.h"

namespace uprobe::plan {

enum class WindowKind : std::uint8_t {
  one,            // an instruction of five bytes or more
  padded,         // instructions and padding after them that is never executed
  several,        // several instructions of one function
  short_jump,     // a jump of two bytes to one of five in unused padding
  prefix_window,  // a jump over the instructions in front of the place as well, which only they lead to
  breakpoint,     // none: see the reason
  refused,        // no probe at all: see the reason
};

// Closed. The first five refuse, the others leave a breakpoint.
enum class WindowReason : std::uint8_t {
  none,
  not_code,
  not_displaceable,
  critical_section,
  covered,  // by the window or the padding of another probe
  not_a_start,
  go_libc,
  go_version,
  go_middle,
  branch_enters,
  function_unknown,
  flow_unknown,
  too_short,
  call_inside,
  system_call_inside,
  neighbour,
  critical_section_after,
  probe_inside,
  page_end,
  pops_flags,
};

using shared::kJumpBytes;
using shared::kShortJumpBytes;

struct Window {
  WindowKind kind = WindowKind::breakpoint;
  WindowReason reason = WindowReason::none;
  FlowTrouble trouble = FlowTrouble::none;  // with WindowReason::flow_unknown
  std::uint64_t address = 0;                // link time
  std::uint8_t length = 0;       // bytes that the jump may change: instructions, and padding up to the jump's end
  std::uint8_t code_length = 0;  // bytes of the instructions, which go into the copy
  std::uint8_t instructions = 0;
  std::array<std::uint8_t, kJumpBytes> offsets = {};  // where they start, from the window's first byte
  std::uint8_t prefix_window =
      0;  // bytes of the instructions in front of the address, less than a jump's, where the jump begins;
          // they are in neither of the two lengths, nor among the instructions
  bool switches_stack = false;   // the jump leads to a switch (arch/shared/trampoline_frame.h)
  bool keeps_addresses = false;  // the program may have kept an address in the middle of it, if its code has run
  std::uint64_t padding = 0;     // short_jump: link-time address of five bytes for the long one

  bool is_jump() const { return kind < WindowKind::breakpoint; }
  std::uint64_t begin() const { return address - prefix_window; }
  // One line without a full stop; empty for a jump.
  std::string text() const;
};

// What the other probes of the same file have. Every place is to be added before the first window is planned: a window
// may not cover the place of another probe.
class WindowClaims {
 public:
  void add_place(std::uint64_t address) { places_.add(address); }
  void take(const Window& window);

  bool has_place_in(std::uint64_t begin, std::uint64_t end) const { return places_.has_in(begin, end); }
  bool is_free(std::uint64_t begin, std::uint64_t end) const { return !taken_.has_in(begin, end); }

 private:
  SparseSet places_;
  SparseSet taken_;  // bytes
};

// The best window for a link-time address: one, padded, several, short_jump, prefix_window, else none.
Window plan_window(const FileFlow& flow, std::uint64_t address, const WindowClaims& claims);

}  // namespace uprobe::plan
