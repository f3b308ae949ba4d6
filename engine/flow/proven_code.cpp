// SPDX-License-Identifier: MIT
#include "engine/flow/proven_code.h"

#include <algorithm>

#include "arch/code/scan.h"
#include "engine/elf/eh_frame.h"
#include "engine/elf/rseq_sections.h"
#include "engine/flow/code_pointers.h"

namespace uprobe::plan {
namespace {

using arch::Leads;

constexpr std::size_t kLeastLooks = 1'000'000;  // of looking at what is not certain, for a file of any size
constexpr int kMostRounds = 8;                  // tables whose code makes pointers to further tables

std::vector<elf::Range> all_code(const elf::ElfFile& file) {
  std::vector<elf::Range> areas;
  for (const elf::Segment& segment : file.segments())
    if (segment.executable) areas.push_back({segment.address, segment.address + segment.file_bytes});
  return areas;
}

// The procedure linkage table: the linker makes all of it.
bool is_linkage(const elf::Section& section) {
  return section.name.rfind(".plt", 0) == 0 && section.header.sh_type == SHT_PROGBITS;
}

// Where the jumps of a function lead is not all shown by its branches.
bool jumps_elsewhere(const SweptFunction& function) {
  return function.jumps_by_pointer || function.jumps_anywhere || function.trouble == FlowTrouble::jump_table;
}

}  // namespace

ProvenCode::ProvenCode(const FileFlow& flow, const std::vector<elf::Range>& data)
    : flow_(flow), reach_(flow.file(), all_code(flow.file())), steps_(kLeastLooks + flow.file().bytes().size()) {
  const Result<elf::Image> image = elf::Image::parse(elf::BytesView(flow.file().bytes()));
  if (!image) return;
  for (const elf::Range& range : data) reach_.add_data(range.begin);
  add_certain(*image);
  reach_.run();
  for (const std::uint64_t target : flow_.table_targets())
    if (!reach_.is_start(target) && is_like_code(target)) reach_.add(target);
  reach_.run();
  for (const std::uint64_t row : flow_.block_rows()) add_blocks(row);
  reach_.run();
  find_jumping();
  for (int round = 0; round < kMostRounds && add_tables(); ++round) reach_.run();
  add_pointers(*image);
  add_labels();
}

void ProvenCode::add_certain(const elf::Image& image) {
  for (const std::uint64_t start : flow_.file().known_starts()) reach_.add(start);
  for (const elf::Frame& frame : elf::frames_of(image))
    if (const auto pads = elf::landing_pads(image, frame, frame.code.end - frame.code.begin))
      for (const std::uint64_t pad : *pads) reach_.add(pad);
  // What stands after a table may be taken for a part of it, and leads anywhere. The others are looked at later.
  for (const std::uint64_t target : flow_.table_targets())
    if (flow_.is_start(target)) reach_.add(target);
  for (const elf::RseqSection& section : flow_.file().rseq_sections())
    if (!section.is_likeness) reach_.add(section.abort);
  for (const elf::Section& section : image.sections())
    if (is_linkage(section)) add_linkage(section.header.sh_addr, section.header.sh_addr + section.header.sh_size);
}

void ProvenCode::add_linkage(std::uint64_t begin, std::uint64_t end) {
  arch::Scanned insn;
  for (std::uint64_t at = begin; at < end && arch::scan(flow_.bytes_at(at), Addr{at}, insn); at += insn.length)
    reach_.add(at);
}

// The functions whose ways are not all shown by branches, and what such a one jumps into: the part of it that the compiler
// set apart has labels of its tables.
void ProvenCode::find_jumping() {
  const auto& functions = flow_.functions();
  jumping_.assign(functions.size(), false);
  arch::Scanned insn;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (!jumps_elsewhere(functions[i])) continue;
    jumping_[i] = true;
    const elf::Range& range = functions[i].range;
    for (auto at = flow_.next_start(range.begin, range.end); at; at = flow_.next_start(*at + 1, range.end)) {
      if (!arch::scan(flow_.bytes_at(*at), Addr{*at}, insn)) continue;
      if (insn.leads != Leads::jump && insn.leads != Leads::jump_if) continue;
      if (const auto part = function_index(functions, insn.target)) jumping_[*part] = true;
    }
  }
}

// The tables that a function with unresolved jumps makes pointers to, as far as they lead to its own instructions. True if
// they lead to new ones.
bool ProvenCode::add_tables() {
  std::vector<std::uint64_t> found;
  arch::Scanned insn;
  for (const SweptFunction& function : flow_.functions()) {
    if (function.trouble != FlowTrouble::jump_table && !function.jumps_anywhere) continue;
    const elf::Range& range = function.range;
    for (auto at = reach_.next_start(range.begin, range.end); at; at = reach_.next_start(*at + 1, range.end)) {
      if (!arch::scan(flow_.bytes_at(*at), Addr{*at}, insn) || !insn.is_address_of || !insn.is_ip_relative) continue;
      const std::vector<std::uint64_t> targets = flow_.table_at(insn.operand);
      if (!spend(1 + targets.size())) return false;
      for (const std::uint64_t target : targets)
        if (range.holds(target) && flow_.is_start(target) && !reach_.is_start(target) && is_like_code(target))
          found.push_back(target);
    }
  }
  for (const std::uint64_t target : found) reach_.add(target);
  return !found.empty();
}

// Which of the blocks are gone to does not show: all up to what cannot be one.
void ProvenCode::add_blocks(std::uint64_t first) {
  const SweptFunction* function = flow_.swept_at(first);
  arch::Scanned insn;
  for (std::uint64_t at = first; function != nullptr && function->range.holds(at); at += insn.length) {
    if (!arch::scan(flow_.bytes_at(at), Addr{at}, insn)) return;
    if (insn.is_padding || reach_.is_start(at)) continue;
    if ((at != first && reach_.is_taken(at)) || !is_like_code(at)) return;
    reach_.add(at);
  }
}

// A table of labels is of use to a function that jumps by pointers; outside of known functions there may be others.
bool ProvenCode::may_lead_to(std::uint64_t address) const {
  const auto index = function_index(flow_.functions(), address);
  return !index || jumping_[*index];
}

// False: too much has been looked at; nothing more is believed.
bool ProvenCode::spend(std::size_t steps) const {
  steps_ -= std::min(steps_, steps);
  return steps_ != 0;
}

// Whether the bytes up to where control does not go on are instructions that fit to those that are known.
bool ProvenCode::is_like_code(std::uint64_t address) const {
  if (reach_.is_read(address) || start_around(flow_.file(), reach_, address)) return false;
  arch::Scanned insn;
  for (std::uint64_t at = address; !reach_.is_start(at); at += insn.length) {
    if (!spend(1) || start_around(flow_.file(), reach_, at) || !arch::scan(flow_.bytes_at(at), Addr{at}, insn))
      return false;
    if (!is_likely_code(flow_.file(), reach_, at, insn)) return false;
    if (!insn.falls_through) return !start_around(flow_.file(), reach_, at + insn.length);
  }
  return true;
}

void ProvenCode::add_pointers(const elf::Image& image) {
  for (const std::uint64_t pointer : elf::code_pointers(image))
    if (!reach_.is_start(pointer) && may_lead_to(pointer) && is_like_code(pointer)) reach_.add(pointer);
  reach_.run();
}

// Symbols without a type name data as well: those that code makes pointers to, or loads from.
void ProvenCode::add_labels() {
  for (const elf::Symbol& symbol : flow_.file().functions()) {
    const bool may_be_data = reach_.is_taken(symbol.address) && !leads_on_from_call(symbol.address);
    if (symbol.is_label && !may_be_data && is_like_code(symbol.address)) reach_.add(symbol.address);
  }
  reach_.run();
}

// Whether a system call stands before the label, and a few instructions lead from there to one that is known: a libc compares the
// place that a signal has interrupted with such labels. No text, and no number or address with a byte of zeros, lies in between.
bool ProvenCode::leads_on_from_call(std::uint64_t label) const {
  constexpr std::uint64_t kMostBytes = 16;
  const auto before = reach_.start_before(label);
  arch::Scanned insn;
  if (!before || !arch::scan(flow_.bytes_at(*before), Addr{*before}, insn) || *before + insn.length != label ||
      insn.leads != Leads::system_call)
    return false;
  std::uint64_t at = label;
  for (; at - label <= kMostBytes && !reach_.is_start(at); at += insn.length)
    if (!arch::scan(flow_.bytes_at(at), Addr{at}, insn) || !is_likely_code(flow_.file(), reach_, at, insn))
      return false;
  const auto from = flow_.bytes_at(label);
  if (!reach_.is_start(at) || from.size() < at - label) return false;
  const auto bytes = from.first(at - label);
  const auto is_printed = [](std::uint8_t byte) { return byte >= ' ' && byte < 0x7f; };
  return std::none_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; }) &&
         !std::all_of(bytes.begin(), bytes.end(), is_printed);
}

bool is_likely_code(const elf::ElfFile& file, const Reach& reach, std::uint64_t address, const arch::Scanned& insn) {
  // The bytes that were scanned may be those of a segment that is not executable.
  const auto from = code_bytes(file, address);
  if (from.size() < insn.length) return false;
  const auto code = from.first(insn.length);
  if (std::all_of(code.begin(), code.end(), [](std::uint8_t byte) { return byte == 0; })) return false;
  if (insn.leads != Leads::jump && insn.leads != Leads::jump_if && insn.leads != Leads::call) return true;
  if (code_bytes(file, insn.target).empty()) return false;
  return reach.is_start(insn.target) || !start_around(file, reach, insn.target);
}

std::optional<std::uint64_t> start_around(const elf::ElfFile& file, const Reach& reach, std::uint64_t address) {
  const auto before = reach.start_before(address);
  arch::Scanned insn;
  if (!before || address - *before >= arch::kMaxInsnBytes) return std::nullopt;
  if (!arch::scan(code_bytes(file, *before), Addr{*before}, insn) || *before + insn.length <= address)
    return std::nullopt;
  return before;
}

}  // namespace uprobe::plan
