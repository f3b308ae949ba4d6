// SPDX-License-Identifier: MIT
#include "engine/flow/flow_sweep.h"

#include <algorithm>

#include "arch/code/scan.h"

namespace uprobe::plan {

using arch::Leads;

struct Step {
  std::uint64_t address = 0;
  arch::Scanned insn;
};

namespace {

bool is_before(const SweptFunction& a, const SweptFunction& b) {
  return a.range.begin != b.range.begin ? a.range.begin < b.range.begin : a.range.end < b.range.end;
}

std::vector<SweptFunction> framed_functions(const std::vector<elf::Frame>& frames) {
  std::vector<SweptFunction> functions;
  functions.reserve(frames.size());
  for (const elf::Frame& frame : frames)
    functions.push_back({.range = frame.code, .begins_at_call = frame.begins_at_call});
  std::sort(functions.begin(), functions.end(), is_before);
  for (std::size_t i = 1; i < functions.size(); ++i) {
    if (functions[i - 1].range.end <= functions[i].range.begin) continue;
    functions[i].trouble = functions[i - 1].trouble = FlowTrouble::overlap;
    functions[i].range.end = std::max(functions[i].range.end, functions[i - 1].range.end);
    functions[i - 1].range.end = functions[i].range.begin;
  }
  std::erase_if(functions, [](const SweptFunction& f) { return f.range.begin == f.range.end; });
  return functions;
}

}  // namespace

std::vector<SweptFunction> swept_functions(const std::vector<elf::Frame>& frames, std::span<const elf::Range> symbols) {
  std::vector<SweptFunction> functions = framed_functions(frames);
  const std::size_t framed = functions.size();
  std::size_t next = 0;  // of the framed ones
  std::uint64_t end = 0;
  for (const elf::Range& symbol : symbols) {
    while (next < framed && functions[next].range.begin < symbol.begin)
      end = std::max(end, functions[next++].range.end);
    const std::uint64_t begin = std::max(symbol.begin, end);
    const std::uint64_t limit = next < framed ? std::min(symbol.end, functions[next].range.begin) : symbol.end;
    if (begin >= limit) continue;
    functions.push_back({.range = {begin, limit}, .trouble = FlowTrouble::no_unwind});
    end = limit;
  }
  std::inplace_merge(functions.begin(), functions.begin() + static_cast<std::ptrdiff_t>(framed), functions.end(),
                     is_before);
  return functions;
}

std::optional<std::size_t> function_index(const std::vector<SweptFunction>& functions, std::uint64_t address) {
  const auto after = std::upper_bound(functions.begin(), functions.end(), address,
                                      [](std::uint64_t a, const SweptFunction& f) { return a < f.range.begin; });
  if (after == functions.begin() || (after - 1)->range.end <= address) return std::nullopt;
  return static_cast<std::size_t>(after - functions.begin()) - 1;
}

void Sweep::run(const elf::Range& part, bool is_code) {
  SegmentMap* segment = map_.at(part.begin);
  if (segment == nullptr) return;
  is_code_ = is_code;
  std::uint64_t begin = part.begin;
  const std::uint64_t end = std::min(part.end, segment->segment.address + segment->bytes.size());
  auto next = std::upper_bound(starts_.begin(), starts_.end(), begin);
  while (begin < end) {
    const std::uint64_t limit = next == starts_.end() ? end : std::min(end, *next);
    run_piece(*segment, begin, limit);
    begin = limit;
    if (next != starts_.end()) ++next;
  }
}

// An instruction that does not end where the next piece starts hides something from one of the two.
void Sweep::run_piece(SegmentMap& segment, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t at = begin;
  Step step;
  while (at < end) {
    enter(at);
    step.address = at;
    if (!arch::scan(segment.bytes.subspan(at - segment.segment.address), Addr{at}, step.insn)) {
      trouble(FlowTrouble::undecodable);
      ++at;
      continue;
    }
    note(segment, step);
    at += step.insn.length;
  }
  if (at == end || !is_code_) return;
  trouble(FlowTrouble::overlap);
  if (const auto index = function_index(functions_, end)) functions_[*index].trouble = FlowTrouble::overlap;
}

// Keeps function_ the one that contains the address.
void Sweep::enter(std::uint64_t address) {
  if (function_ != nullptr && address >= function_->range.begin && address < function_->range.end) return;
  leave_function();
  const auto index = function_index(functions_, address);
  function_ = index ? &functions_[*index] : nullptr;
}

// Of most functions nothing is kept.
void Sweep::leave_function() {
  if (!seen_.register_jumps.empty()) {
    std::sort(seen_.jumps.begin(), seen_.jumps.end());
    std::sort(seen_.made.begin(), seen_.made.end());
    seen_.made.erase(std::unique(seen_.made.begin(), seen_.made.end()), seen_.made.end());
    seen_.function = static_cast<std::size_t>(function_ - functions_.data());
    jumping_.push_back(seen_);
  }
  seen_.register_jumps.clear();
  seen_.jumps.clear();
  seen_.made.clear();
}

std::vector<JumpingFunction> Sweep::take_jumping() {
  leave_function();
  function_ = nullptr;
  return std::move(jumping_);
}

void Sweep::trouble(FlowTrouble trouble) {
  if (function_ != nullptr) function_->trouble = trouble;
}

void Sweep::note(SegmentMap& segment, const Step& step) {
  const arch::Scanned& insn = step.insn;
  segment.starts.set(step.address);
  if (insn.is_padding) segment.padding.set(step.address);
  if (insn.leads != Leads::on) note_flow(segment, step);
  // A register and a 32-bit displacement make an address only where addresses have 32 bits.
  if (insn.has_operand && (insn.is_ip_relative || !is_position_independent_))
    note_value(segment, insn.operand, insn.is_address_of, insn.is_ip_relative);
  if (insn.has_immediate && !is_position_independent_) note_value(segment, insn.immediate, true, false);
  if (insn.is_address_of && insn.is_ip_relative && function_ != nullptr) seen_.made.push_back(insn.operand);
}

void Sweep::note_flow(SegmentMap& segment, const Step& step) {
  const Leads leads = step.insn.leads;
  if (!step.insn.falls_through) segment.stops.set(step.address);
  if (leads == Leads::call || leads == Leads::jump || leads == Leads::jump_if) note_target(segment, step);
  if (function_ == nullptr) return;
  if (leads == Leads::jump_by_register) seen_.register_jumps.push_back(step.address);
  if (leads == Leads::jump_by_memory) note_memory_jump(step);
}

void Sweep::note_target(SegmentMap& segment, const Step& step) {
  const std::uint64_t target = step.insn.target;
  SegmentMap* holder = segment.holds(target) ? &segment : map_.at(target);
  if (holder == nullptr) return;
  // Outside of functions there may be data, which only looks like a branch.
  if (function_ == nullptr || function_->trouble == FlowTrouble::no_unwind) return holder->named.set(target);
  const bool is_inside = target >= function_->range.begin && target < function_->range.end;
  if (step.insn.leads == Leads::call || !is_inside) return holder->entered.set(target);
  segment.jumped.set(target);
  seen_.jumps.emplace_back(target, step.address);
}

// What is no code ends a jump table that lies before it, so it counts only when it is certain: a table that goes on for
// too long is harmless, one that ends too soon is not.
void Sweep::note_value(SegmentMap& segment, std::uint64_t value, bool is_made, bool is_certain) {
  if (!is_code_) return;
  SegmentMap* holder = segment.holds(value) ? &segment : map_.at(value);
  if (holder == nullptr) return;
  const bool is_function = function_ != nullptr && function_->trouble != FlowTrouble::no_unwind;
  if (holder->segment.executable || (is_certain && is_function)) holder->named.set(value);
  if (is_made && function_ != nullptr && value > function_->range.begin && value < function_->range.end)
    function_->takes_label = true;
}

void Sweep::note_memory_jump(const Step& step) {
  function_->jumps_by_pointer = true;
  // Pointers in a file's data are looked for at multiples of eight.
  const bool is_table = step.insn.has_operand && !step.insn.is_ip_relative && map_.at(step.insn.operand) != nullptr;
  const bool is_known = function_->trouble == FlowTrouble::none;
  if (is_table && is_known && step.insn.operand % 8 != 0) function_->trouble = FlowTrouble::jump_table;
}

}  // namespace uprobe::plan
