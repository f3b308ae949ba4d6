// SPDX-License-Identifier: MIT
#include "engine/dwarf/body.h"

#include <algorithm>
#include <span>

#include "arch/code/packed.h"
#include "arch/code/scan.h"
#include "engine/flow/reach.h"

namespace uprobe::dwarf {
namespace {

// No function is larger; a file may claim any range.
constexpr std::uint64_t kMostBytes = 16 << 20;

void note(Body& body, std::uint64_t at, const arch::Scanned& insn, arch::Bytes bytes) {
  switch (insn.leads) {
    case arch::Leads::jump:
    case arch::Leads::jump_if:
      body.jumps.push_back({at, insn.target});
      break;
    case arch::Leads::jump_by_register:
    case arch::Leads::jump_by_memory:
      body.computed.push_back(at);
      break;
    default:
      if (arch::computes_packed(bytes)) body.packed.push_back(at);
  }
}

// False: not all of the range are instructions.
bool read_code(const elf::ElfFile& file, const elf::Range& range, Body& body) {
  const auto bytes = plan::code_bytes(file, range.begin);
  const std::uint64_t size = range.end - range.begin;
  if (size > bytes.size() || size > kMostBytes) return false;
  for (std::uint64_t at = 0; at < size;) {
    const auto rest = bytes.subspan(at);
    arch::Scanned insn;
    if (!arch::scan(rest, Addr{range.begin + at}, insn) || insn.length == 0 || insn.length > size - at) return false;
    const bool is_jump = insn.leads == arch::Leads::jump || insn.leads == arch::Leads::jump_if;
    body.insns.push_back({.address = range.begin + at,
                          .target = is_jump ? insn.target : 0,
                          .length = insn.length,
                          .falls_through = insn.falls_through,
                          .just_computes = arch::just_computes(rest)});
    note(body, range.begin + at, insn, rest);
    at += insn.length;
  }
  return true;
}

std::uint64_t address_of(Dwarf_Lines* lines, std::size_t index) {
  Dwarf_Addr address = 0;
  return dwarf_lineaddr(dwarf_onesrcline(lines, index), &address) == 0 ? address : 0;
}

// The first row at or after an address; libdw sorts them.
std::size_t first_row(Dwarf_Lines* lines, std::size_t count, std::uint64_t address) {
  std::size_t low = 0;
  for (std::size_t high = count; low < high;) {
    const std::size_t middle = low + (high - low) / 2;
    if (address_of(lines, middle) < address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

bool ends_sequence(Dwarf_Line* line) {
  bool is_end = false;
  return dwarf_lineendsequence(line, &is_end) == 0 && is_end;
}

void take_row(Dwarf_Line* line, BodyRow row, Body& body) {
  const char* source = dwarf_linesrc(line, nullptr, nullptr);
  if (source == nullptr || dwarf_linebeginstatement(line, &row.is_statement) != 0) return;
  if (dwarf_lineno(line, &row.line) != 0 || dwarf_linecol(line, &row.column) != 0) return;
  row.source = source;
  body.rows.push_back(row);
}

// The end of other code at the same address is no view of this one.
void read_rows(Dwarf_Lines* lines, std::size_t count, const elf::Range& range, Body& body) {
  BodyRow row;
  unsigned views = 0;
  for (std::size_t i = first_row(lines, count, range.begin); i < count; ++i) {
    Dwarf_Line* line = dwarf_onesrcline(lines, i);
    const std::uint64_t address = address_of(lines, i);
    if (address >= range.end) return;
    if (address != row.address) views = 0;
    row.address = address;
    if (ends_sequence(line)) continue;
    row.view = views++;
    take_row(line, row, body);
  }
}

void read_rows(const DebugInfo::Handles& handles, Body& body) {
  auto unit = unit_at(handles, body.ranges.front().begin);
  Dwarf_Lines* lines = nullptr;
  std::size_t count = 0;
  if (!unit || dwarf_getsrclines(&*unit, &lines, &count) != 0) return;
  for (const elf::Range& range : body.ranges) read_rows(lines, count, range, body);
}

// Marks what control reaches from an instruction on.
void reach(const Body& body, std::size_t from, std::vector<bool>& reached) {
  std::vector<std::size_t> pending{from};
  const auto arrive = [&](std::uint64_t address) {
    const auto at = std::ranges::lower_bound(body.insns, address, {}, &BodyInsn::address);
    const auto index = static_cast<std::size_t>(at - body.insns.begin());
    if (at != body.insns.end() && at->address == address && !reached[index]) pending.push_back(index);
  };
  while (!pending.empty()) {
    const std::size_t index = pending.back();
    pending.pop_back();
    if (reached[index]) continue;
    reached[index] = true;
    const BodyInsn& insn = body.insns[index];
    if (insn.falls_through) arrive(insn.address + insn.length);
    if (insn.target != 0) arrive(insn.target);
  }
}

// What nothing in the code leads to: unwinding does, or nothing.
void find_roots(std::uint64_t entry, Body& body) {
  std::ranges::sort(body.insns, {}, &BodyInsn::address);
  std::vector<bool> reached(body.insns.size());
  const auto add = [&](std::size_t index) {
    body.roots.push_back(index);
    reach(body, index, reached);
  };
  const auto first = std::ranges::find(body.insns, entry, &BodyInsn::address);
  if (first != body.insns.end()) add(static_cast<std::size_t>(first - body.insns.begin()));
  for (std::size_t i = 0; i < body.insns.size(); ++i)
    if (!reached[i]) add(i);
}

}  // namespace

std::vector<bool> reached_without(const Body& body, std::uint64_t left_out) {
  std::vector<bool> reached(body.insns.size());
  const auto at = std::ranges::lower_bound(body.insns, left_out, {}, &BodyInsn::address);
  const bool is_there = at != body.insns.end() && at->address == left_out;
  const auto index = static_cast<std::size_t>(at - body.insns.begin());
  if (is_there) reached[index] = true;
  for (const std::size_t root : body.roots)
    if (!reached[root]) reach(body, root, reached);
  if (is_there) reached[index] = false;
  return reached;
}

bool leads_to(const Body& body, std::size_t from, std::uint64_t address) {
  std::vector<bool> reached(body.insns.size());
  reach(body, from, reached);
  const auto at = std::ranges::lower_bound(body.insns, address, {}, &BodyInsn::address);
  return at != body.insns.end() && at->address == address && reached[static_cast<std::size_t>(at - body.insns.begin())];
}

bool holds(const std::vector<elf::Range>& ranges, std::uint64_t address) {
  return std::ranges::any_of(ranges, [&](const elf::Range& range) { return range.holds(address); });
}

std::vector<elf::Range> ranges_of(Dwarf_Die die) {
  constexpr std::size_t kMostRanges = 4096;
  std::vector<elf::Range> ranges;
  Dwarf_Addr base = 0, begin = 0, end = 0;
  std::ptrdiff_t at = 0;
  while (ranges.size() < kMostRanges && (at = dwarf_ranges(&die, at, &base, &begin, &end)) > 0)
    if (begin < end) ranges.push_back({begin, end});
  return ranges;
}

Body body_of(const DebugInfo::Handles& handles, Dwarf_Die function) {
  Body body{.ranges = ranges_of(function)};
  if (body.ranges.empty()) return body;
  read_rows(handles, body);
  body.is_known =
      std::ranges::all_of(body.ranges, [&](const elf::Range& range) { return read_code(*handles.file, range, body); });
  Dwarf_Addr entry = 0;
  if (dwarf_entrypc(&function, &entry) != 0) entry = body.ranges.front().begin;
  find_roots(entry, body);
  return body;
}

}  // namespace uprobe::dwarf
