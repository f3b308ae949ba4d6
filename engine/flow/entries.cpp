// SPDX-License-Identifier: MIT
#include "engine/flow/entries.h"

#include <algorithm>

#include "arch/code/scan.h"
#include "engine/flow/code_pointers.h"

namespace uprobe::plan {
namespace {

using arch::Leads;

// Drops the doubles: a list of calls must not grow with their number.
void sort_out(std::vector<std::uint64_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

FunctionEntries::FunctionEntries(const FileFlow& flow) {
  for (const elf::Segment& segment : flow.file().segments())
    if (segment.executable) read(flow, {segment.address, segment.address + segment.file_bytes});
  if (const auto image = elf::Image::parse(elf::BytesView(flow.file().bytes())))
    for (const std::uint64_t pointer : elf::code_pointers(*image)) note_pointer(flow, pointer);
  sort_out(called_);
  sort_out(pointed_);
  std::sort(crossings_.begin(), crossings_.end());
}

void FunctionEntries::read(const FileFlow& flow, const elf::Range& code) {
  elf::Range around;  // the function that is being looked at
  arch::Scanned insn;
  for (auto at = flow.next_start(code.begin, code.end); at; at = flow.next_start(*at + 1, code.end)) {
    if (!around.holds(*at)) {
      const SweptFunction* function = flow.swept_at(*at);
      around = function != nullptr ? function->range : elf::Range{};
    }
    if (!arch::scan(flow.bytes_at(*at), Addr{*at}, insn)) continue;
    // A register and a 32-bit displacement make an address only where addresses have 32 bits.
    const bool has_low_addresses = !flow.file().is_position_independent();
    if (insn.is_address_of && (insn.is_ip_relative || has_low_addresses)) note_pointer(flow, insn.operand);
    if (insn.has_immediate && has_low_addresses) note_pointer(flow, insn.immediate);
    const bool is_call = insn.leads == Leads::call;
    const bool is_jump = insn.leads == Leads::jump || insn.leads == Leads::jump_if;
    const bool leaves = is_call || (is_jump && !around.holds(insn.target));
    const SweptFunction* target = leaves ? flow.swept_at(insn.target) : nullptr;
    if (target == nullptr) continue;
    if (is_call && target->range.begin == insn.target)
      note_called(insn.target);
    else
      crossings_.push_back({insn.target, *at});
  }
}

void FunctionEntries::note_called(std::uint64_t address) {
  constexpr std::size_t kMany = 1u << 16;
  called_.push_back(address);
  if (called_.size() < sorted_ + kMany) return;
  sort_out(called_);
  sorted_ = called_.size();
}

void FunctionEntries::note_pointer(const FileFlow& flow, std::uint64_t value) {
  if (flow.bytes_at(value).empty()) return;
  const SweptFunction* function = flow.swept_at(value);
  if (function != nullptr && function->trouble == FlowTrouble::no_unwind && value != function->range.begin)
    pointed_.push_back(value);
}

std::span<const Crossing> FunctionEntries::into(const elf::Range& range) const {
  const auto first = std::lower_bound(crossings_.begin(), crossings_.end(), Crossing{range.begin, 0});
  const auto last = std::lower_bound(first, crossings_.end(), Crossing{range.end, 0});
  return {first, last};
}

bool FunctionEntries::is_called(std::uint64_t address) const {
  return std::binary_search(called_.begin(), called_.end(), address);
}

bool FunctionEntries::is_pointed_into(const elf::Range& range) const {
  const auto first = std::lower_bound(pointed_.begin(), pointed_.end(), range.begin);
  return first != pointed_.end() && *first < range.end;
}

}  // namespace uprobe::plan
