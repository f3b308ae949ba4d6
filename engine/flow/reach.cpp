// SPDX-License-Identifier: MIT
#include "engine/flow/reach.h"

#include <algorithm>
#include <utility>

#include "arch/code/scan.h"
#include "arch/code/stack_patterns.h"

namespace uprobe::plan {

using arch::Leads;

std::span<const std::uint8_t> code_bytes(const elf::ElfFile& file, std::uint64_t from) {
  for (const elf::Segment& s : file.segments()) {
    if (!s.executable || from < s.address || from - s.address >= s.file_bytes) continue;
    const std::uint64_t skip = from - s.address;
    const auto bytes = file.bytes();
    if (s.offset + skip >= bytes.size()) return {};
    return bytes.subspan(s.offset + skip, std::min(s.file_bytes - skip, bytes.size() - s.offset - skip));
  }
  return {};
}

Reach::Reach(const elf::ElfFile& file, const std::vector<elf::Range>& areas)
    : file_(file), is_position_independent_(file.is_position_independent()) {
  for (const elf::Range& range : areas) {
    const auto bytes = code_bytes(file, range.begin);
    const std::uint64_t end = range.begin + std::min<std::uint64_t>(range.end - range.begin, bytes.size());
    if (end <= range.begin) continue;
    const AddressBits none(range.begin, end);
    areas_.push_back({{range.begin, end}, bytes, none, none, none, none});
  }
  std::sort(areas_.begin(), areas_.end(), [](const Area& a, const Area& b) { return a.range.begin < b.range.begin; });
}

const Reach::Area* Reach::area_of(std::uint64_t address) const {
  const auto after = std::upper_bound(areas_.begin(), areas_.end(), address,
                                      [](std::uint64_t a, const Area& area) { return a < area.range.begin; });
  if (after == areas_.begin() || (after - 1)->range.end <= address) return nullptr;
  return &*(after - 1);
}

Reach::Area* Reach::area_of(std::uint64_t address) { return const_cast<Area*>(std::as_const(*this).area_of(address)); }

// What is data shows only when code has been followed that loads it: where control was taken to fall into something that
// proved to be data, everything is followed once more with that known.
void Reach::run() {
  constexpr int kMostRounds = 4;
  for (int round = 1;; ++round) {
    follow_all();
    if (round == kMostRounds || !fell_into_data()) return;
    for (Area& area : areas_) area.starts = area.arrivals = AddressBits(area.range.begin, area.range.end);
    for (const std::uint64_t place : places_) arrive(place);
  }
}

void Reach::add(std::uint64_t place) {
  places_.push_back(place);
  arrive(place);
}

void Reach::add_data(std::uint64_t place) {
  if (Area* area = area_of(place)) area->read.set(place);
}

void Reach::arrive(std::uint64_t target) {
  Area* area = area_of(target);
  if (area == nullptr || area->arrivals.test(target)) return;
  area->arrivals.set(target);
  if (!area->starts.test(target)) pending_.push_back(target);
}

void Reach::follow_all() {
  while (!pending_.empty()) {
    const std::uint64_t at = pending_.back();
    pending_.pop_back();
    follow(at);
  }
}

void Reach::follow(std::uint64_t at) {
  Area* area = area_of(at);
  arch::Scanned insn;
  while (area->range.holds(at) && !area->starts.test(at)) {
    const auto code = area->bytes.subspan(at - area->range.begin);
    if (!arch::scan(code, Addr{at}, insn)) return;
    area->starts.set(at);
    note_operands(insn);
    const bool has_target = insn.leads == Leads::jump || insn.leads == Leads::jump_if || insn.leads == Leads::call;
    if (has_target) arrive(insn.target);
    // A breakpoint that control reaches is no padding: its handler goes on after it.
    const bool goes_on = insn.falls_through || insn.is_padding;
    if (!goes_on || (insn.leads == Leads::call && takes_return_address(insn.target, at))) return;
    at += insn.length;
    if (is_data_after(*area, insn, at)) return;
  }
}

void Reach::note_operands(const arch::Scanned& insn) {
  // A register and a 32-bit displacement make an address only where addresses have 32 bits.
  if (insn.has_operand && (insn.is_ip_relative || !is_position_independent_))
    if (Area* area = area_of(insn.operand)) (insn.is_address_of ? area->taken : area->read).set(insn.operand);
  if (insn.has_immediate && !is_position_independent_)
    if (Area* area = area_of(insn.immediate)) area->taken.set(insn.immediate);
}

// Whether the instruction does not go on to `next`, because data begin there: who makes a pointer to what follows a call may
// know that the call does not come back.
bool Reach::is_data_after(const Area& area, const arch::Scanned& insn, std::uint64_t next) {
  const bool may_end =
      insn.leads == Leads::call || insn.leads == Leads::call_indirect || insn.leads == Leads::system_call;
  return area.read.test(next) || (may_end && area.taken.test(next));
}

bool Reach::fell_into_data() const {
  for (const Area& area : areas_)
    for (const AddressBits* bits : {&area.read, &area.taken})
      for (auto at = bits->next(area.range.begin, area.range.end); at; at = bits->next(*at + 1, area.range.end))
        if (area.starts.test(*at) && !area.arrivals.test(*at) && is_fallen_into(area, *at)) return true;
  return false;
}

bool Reach::is_fallen_into(const Area& area, std::uint64_t at) {
  const std::uint64_t first = at - std::min<std::uint64_t>(at - area.range.begin, arch::kMaxInsnBytes);
  arch::Scanned insn;
  for (auto before = area.starts.next(first, at); before; before = area.starts.next(*before + 1, at)) {
    const auto code = area.bytes.subspan(*before - area.range.begin);
    if (!arch::scan(code, Addr{*before}, insn) || *before + insn.length != at) continue;
    if (is_data_after(area, insn, at)) return true;
  }
  return false;
}

// A call over a string, whose address is then taken from the stack. vfork() puts it back. A load of it, or dropping it, counts only in the caller's
// own function: other functions load it to learn where they were called from, and return.
bool Reach::takes_return_address(std::uint64_t callee, std::uint64_t caller) const {
  constexpr int kMostInstructions = 8;
  const auto is_local = [this, callee, caller] {
    const auto function = file_.range_at(callee);
    return function && callee != function->begin && function->holds(caller);
  };
  auto code = code_bytes(file_, callee);
  arch::Scanned insn;
  unsigned taken = arch::kNoRegister;
  for (int i = 0; i < kMostInstructions && arch::scan(code, Addr{callee}, insn); ++i) {
    const auto bytes = code.first(insn.length);
    const unsigned pushed = arch::pushed_register(bytes);
    if (taken == arch::kNoRegister && pushed != arch::kNoRegister) return false;
    if (pushed != arch::kNoRegister && pushed == taken) return false;
    if (taken == arch::kNoRegister) taken = arch::popped_register(bytes);
    if (taken == arch::kNoRegister && arch::reserves_stack(bytes)) return false;
    if (taken == arch::kNoRegister && arch::uses_return_address(bytes)) return is_local();
    if (!insn.falls_through || (insn.leads != Leads::on && insn.leads != Leads::system_call)) break;
    code = code.subspan(insn.length);
    callee += insn.length;
  }
  return taken != arch::kNoRegister;
}

bool Reach::is_start(std::uint64_t address) const {
  const Area* area = area_of(address);
  return area != nullptr && area->starts.test(address);
}

std::optional<std::uint64_t> Reach::next_start(std::uint64_t from, std::uint64_t limit) const {
  const Area* area = area_of(from);
  return area == nullptr ? std::nullopt : area->starts.next(from, limit);
}

std::optional<std::uint64_t> Reach::start_before(std::uint64_t address) const {
  const Area* area = address == 0 ? nullptr : area_of(address - 1);
  return area == nullptr ? std::nullopt : area->starts.last(area->range.begin, address);
}

bool Reach::is_read(std::uint64_t address) const {
  const Area* area = area_of(address);
  return area != nullptr && area->read.test(address);
}

bool Reach::is_taken(std::uint64_t address) const {
  const Area* area = area_of(address);
  return area != nullptr && area->taken.test(address);
}

bool Reach::is_used_as_data(std::uint64_t from, std::uint64_t limit) const {
  const Area* area = area_of(from);
  return area != nullptr && (area->read.next(from, limit) || area->taken.next(from, limit));
}

}  // namespace uprobe::plan
