// SPDX-License-Identifier: MIT
// Where control can arrive, of all code of a file: the ground on which windows of several instructions stand.
//
// Built once per file by one pass over its code: some 20 M instructions a second, and about as much memory as there is code. It is kept
// from run to run (engine/facts/kept_facts.h).
// Only code with unwind information (.eh_frame) counts as known: compilers make it for every function, what else
// lies there (hand-made code, a virtual machine's builtins) may be entered in ways of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/elf/elf_file.h"
#include "engine/flow/flow_sweep.h"
#include "engine/flow/go_program.h"

namespace uprobe::plan {

// "an indirect jump whose targets are not known"; empty for none.
const char* text_of(FlowTrouble trouble);

// One function, as its FDE bounds it.
struct FunctionFlow {
  elf::Range range;
  FlowTrouble trouble = FlowTrouble::none;  // none: the known arrivals are all
  bool jumps_anywhere = false;              // with no_unwind: an indirect jump of its own may lead to its first bytes

  bool is_known() const { return trouble == FlowTrouble::none; }
};

class FileFlow {
 public:
  // The file must outlive it. Files that make no sense give an empty one. `threads`: at most so many find it out together; what
  // they find is the same.
  explicit FileFlow(const elf::ElfFile& file, unsigned threads = usual_threads());

  const elf::ElfFile& file() const { return file_; }
  // The function that contains a link-time address; nothing where no unwind information covers it.
  std::optional<FunctionFlow> function_at(std::uint64_t address) const;
  const SweptFunction* swept_at(std::uint64_t address) const;
  const std::vector<SweptFunction>& functions() const { return functions_; }

  // Whether control may arrive at the address other than from the instruction before, as far as is known: all there is
  // only where the function is known.
  bool is_arrival(std::uint64_t address) const;
  // Whether branches from elsewhere, symbols or unwind tables lead there: it is no value that only looks like an address.
  bool is_entered(std::uint64_t address) const;
  // Whether control may arrive in [from, limit).
  bool has_arrival(std::uint64_t from, std::uint64_t limit) const;

  // Whether a value in data or code could be an address in [from, limit).
  bool is_named_in(std::uint64_t from, std::uint64_t limit) const;
  // Whether the jump through a register at the address goes where a pointer leads, and not by a table.
  bool is_pointer_jump(std::uint64_t address) const;

  // Where jump tables lead, and what stands after them; sorted, each once.
  const std::vector<std::uint64_t>& table_targets() const { return table_targets_; }
  // Where rows of blocks of code begin that jumps compute their way into; sorted, each once.
  const std::vector<std::uint64_t>& block_rows() const { return block_rows_; }
  // Where a table of distances from its own address would lead, if one stands there.
  std::vector<std::uint64_t> table_at(std::uint64_t address) const;

  bool is_start(std::uint64_t address) const;    // of an instruction
  bool is_stop(std::uint64_t address) const;     // start of one after which control does not go on
  bool is_padding(std::uint64_t address) const;  // start of a nop or int3
  // The first start of one after which control does not go on, in [from, limit) of one segment.
  std::optional<std::uint64_t> next_stop(std::uint64_t from, std::uint64_t limit) const;
  // The first and the last start of an instruction in [from, limit) of one segment.
  std::optional<std::uint64_t> next_start(std::uint64_t from, std::uint64_t limit) const;
  std::optional<std::uint64_t> last_start(std::uint64_t from, std::uint64_t limit) const;
  std::span<const std::uint8_t> bytes_at(std::uint64_t address) const { return map_.bytes_at(address); }

  // Go's stacks are small, its scheduler keeps addresses of any instruction.
  bool is_go() const { return go_ != GoProgram::none; }
  GoProgram go() const { return go_; }
  // Nops may be there to be patched (-fpatchable-function-entry, XRay).
  bool has_patchable_entries() const { return has_patchable_entries_; }
  std::size_t memory() const;

 private:
  static unsigned usual_threads();
  struct Share;

  void find_out(const elf::Image& image, unsigned threads);
  bool take_kept();
  void keep() const;

  void name_all(const elf::Image& image, const std::vector<elf::Frame>& frames,
                const std::vector<std::uint64_t>& starts);
  std::vector<JumpingFunction> sweep(const elf::Image& image, const std::vector<std::uint64_t>& starts,
                                     unsigned threads);
  std::vector<JumpingFunction> join(std::vector<Share>& shares);
  void resolve_jumps(const std::vector<JumpingFunction>& jumping);
  static void note_unresolved(SweptFunction& function);
  void note_table(SweptFunction& from, std::uint64_t target);
  bool resolve_function(const JumpingFunction& jumping, std::size_t& steps);
  void find_unreached();
  bool has_unreached(const elf::Range& range, const SegmentMap& code) const;
  bool is_undefined(std::uint64_t address) const;
  bool is_consistent(const SweptFunction& function, const SegmentMap& code) const;
  void spread_trouble();

  const elf::ElfFile& file_;
  FlowMap map_;
  std::vector<SweptFunction> functions_;
  std::vector<std::uint64_t> pointer_jumps_;  // through registers; sorted
  std::vector<std::uint64_t> table_targets_, block_rows_;
  GoProgram go_ = GoProgram::none;
  bool has_patchable_entries_ = false;
};

}  // namespace uprobe::plan
