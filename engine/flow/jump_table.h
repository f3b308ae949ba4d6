// SPDX-License-Identifier: MIT
// Where the jumps through a register lead: what compilers make of a switch, and pointers.
//
// A pointer that is loaded whole, passed in or returned leads to an address that something names: data, relocations or
// code that makes it, all of which a FlowMap knows. Only an address that is computed right here can be one that nothing
// names. Compilers compute one for a switch in position-independent code:
//
//   the address of a table;  four bytes of it, sign-extended;  the sum of both;  a jump to that
//
// with the distances of the cases from the table in it (arch::RegisterValue); and for a computed goto (&&base + distances[i]) the same with
// distances from a label. Anything else that is computed is not known.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "arch/code/scan.h"
#include "engine/flow/flow_map.h"
#include "engine/flow/flow_sweep.h"

namespace uprobe::plan {

// One function, for questions about what its registers hold.
class FunctionCode {
 public:
  // `seen` is what the sweep saw of it and must outlive this. `steps` is what may be spent on all questions; when it is
  // used up every answer is that nothing is known.
  FunctionCode(const FlowMap& map, const elf::Range& range, const JumpingFunction& seen, std::size_t& steps)
      : map_(map), segment_(*map.code_at(range.begin)), range_(range), seen_(seen), steps_(steps) {}

  // Where the value comes from that a register holds before the instruction at `address`, on every way there that the
  // code shows.
  struct Origin {
    arch::RegisterValue value;  // none of those that say "same" or "copy"
    std::uint64_t address = 0;  // of the instruction that makes it
  };
  std::vector<Origin> origins(unsigned reg, std::uint64_t address) const;

  // Whether control comes from one instruction to the other on one way only, which leaves the register alone.
  bool keeps(unsigned reg, std::uint64_t from, std::uint64_t to) const;
  const elf::Range& range() const { return range_; }
  // The addresses that the function makes by adding to its own, each once.
  const std::vector<std::uint64_t>& addresses_made() const { return seen_.made; }
  std::span<const std::uint8_t> bytes_at(std::uint64_t address) const { return map_.bytes_at(address); }
  // Whether so many steps are left; they are spent.
  bool spend(std::size_t steps) const;

 private:
  struct Ways {
    std::optional<std::uint64_t> before;  // the instruction before, if control comes from there
    std::span<const std::pair<std::uint64_t, std::uint64_t>> jumps;  // target, source
    bool is_entry = false;
    bool is_known = true;  // there are no others
    std::size_t count() const { return jumps.size() + (before ? 1 : 0); }
  };
  Ways ways_to(std::uint64_t address) const;

  const FlowMap& map_;
  const SegmentMap& segment_;
  elf::Range range_;
  const JumpingFunction& seen_;
  std::size_t& steps_;
};

struct JumpTargets {
  bool is_known = false;
  bool has_pointers = false;           // some of the targets are whatever a pointer holds
  std::vector<std::uint64_t> targets;  // the other ones, anywhere in executable segments
  std::vector<std::uint64_t> blocks;   // beginnings of rows of blocks of code that it computes its way into
};

// A table ends where something else is named, or at the first entry that does not lead to code: what stands after it may
// be taken for a part of it, never the other way round.
JumpTargets targets_of_jump(const FlowMap& map, const FunctionCode& code, std::uint64_t jump);

// The targets in a table of distances from an address; empty if it is none.
std::vector<std::uint64_t> read_jump_table(const FlowMap& map, std::uint64_t table, std::uint64_t from);

}  // namespace uprobe::plan
