// SPDX-License-Identifier: MIT
// The one pass over all code of a file that fills a FlowMap: every instruction, every address that one names.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/elf/eh_frame.h"
#include "engine/flow/flow_map.h"

namespace uprobe::plan {

// Why the flow of a function is not known. Closed; the texts are in flow.cpp.
enum class FlowTrouble : std::uint8_t {
  none,
  undecodable,       // bytes that are no instructions
  overlap,           // with another function or across a symbol, or a jump into an instruction
  jump_table,        // an indirect jump whose targets are not known
  landing_pads,      // a table of landing pads that cannot be read
  unreached,         // code that nothing known leads to
  other_part,        // one of these in a function that jumps here, or that this one jumps into
  text_relocations,  // the loader changes the code
  no_unwind,         // no FDE: not made by a compiler, perhaps
};

struct SweptFunction {
  elf::Range range;  // of its FDE, or of its symbol
  FlowTrouble trouble = FlowTrouble::none;
  bool begins_at_call = false;    // as its FDE says: see elf::Frame
  bool takes_label = false;       // makes a pointer to somewhere inside itself
  bool jumps_by_pointer = false;  // through memory, or through a register that holds a finished pointer
  bool leaves_by_table = false;   // a jump table leads out of it
  bool entered_by_table = false;  // another function's jump table leads into it
  bool jumps_anywhere = false;    // with trouble no_unwind: has an indirect jump whose targets are not known
};

// What the code of a function with jumps through registers shows of the ways through it.
struct JumpingFunction {
  std::size_t function = 0;  // index
  std::vector<std::uint64_t> register_jumps;
  // Target, source; sorted. The direct ones that stay inside the function.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> jumps;
  std::vector<std::uint64_t> made;  // addresses that it makes with lea; sorted, each once
};

// By address, no two overlapping: the functions of the unwind tables (of two that overlap both are in trouble), and what
// symbols say of the code between those.
std::vector<SweptFunction> swept_functions(const std::vector<elf::Frame>& frames, std::span<const elf::Range> symbols);

// Index of the function that contains the address.
std::optional<std::size_t> function_index(const std::vector<SweptFunction>& functions, std::uint64_t address);

// Decodes parts of executable segments, from each start anew.
class Sweep {
 public:
  // `starts`: sorted, where an instruction certainly begins.
  Sweep(FlowMap& map, std::vector<SweptFunction>& functions, const std::vector<std::uint64_t>& starts,
        bool is_position_independent)
      : map_(map), functions_(functions), starts_(starts), is_position_independent_(is_position_independent) {}

  // Not `is_code`: bytes that may be code. Where their branches would lead counts, the values in them do not.
  void run(const elf::Range& part, bool is_code);
  // By address. Ends the sweep.
  std::vector<JumpingFunction> take_jumping();

 private:
  void run_piece(SegmentMap& segment, std::uint64_t begin, std::uint64_t end);
  void enter(std::uint64_t address);
  void leave_function();
  void note(SegmentMap& segment, const struct Step& step);
  void note_flow(SegmentMap& segment, const struct Step& step);
  void note_target(SegmentMap& segment, const struct Step& step);
  void note_value(SegmentMap& segment, std::uint64_t value, bool is_made, bool is_certain);
  void note_memory_jump(const struct Step& step);
  void trouble(FlowTrouble trouble);

  FlowMap& map_;
  std::vector<SweptFunction>& functions_;
  const std::vector<std::uint64_t>& starts_;
  bool is_position_independent_;
  bool is_code_ = true;
  std::size_t next_function_ = 0;
  SweptFunction* function_ = nullptr;  // the one that is being decoded
  JumpingFunction seen_;               // of function_, so far
  std::vector<JumpingFunction> jumping_;
};

}  // namespace uprobe::plan
