// SPDX-License-Identifier: MIT
#include "engine/flow/flow.h"

#include <algorithm>
#include <array>
#include <functional>
#include <future>
#include <thread>

#include "arch/code/instruction_bytes.h"
#include "arch/code/scan.h"
#include "engine/elf/eh_frame.h"
#include "engine/elf/image.h"
#include "engine/facts/kept_facts.h"
#include "engine/flow/code_pointers.h"
#include "engine/flow/jump_table.h"

namespace uprobe::plan {

struct CodePart {
  elf::Range range;
  bool is_code = false;
};

// What one thread sweeps, and finds.
struct FileFlow::Share {
  std::vector<CodePart> parts;
  FlowMap map;
  std::vector<SweptFunction> functions;  // all of the file's, of which those in its parts are its own
  std::vector<JumpingFunction> jumping;
};

namespace {

using arch::Leads;

constexpr std::size_t kLeastSteps = 1'000'000;  // of following registers, for a file of any size

// The sections of code, by address, no two overlapping.
std::vector<elf::Range> code_sections(const elf::Image& image) {
  std::vector<elf::Range> found;
  for (const elf::Section& section : image.sections()) {
    const auto& header = section.header;
    const bool is_code = (header.sh_flags & SHF_EXECINSTR) != 0 && header.sh_type == SHT_PROGBITS;
    if (is_code && header.sh_addr + header.sh_size > header.sh_addr)
      found.push_back({header.sh_addr, header.sh_addr + header.sh_size});
  }
  std::sort(found.begin(), found.end(), [](const elf::Range& a, const elf::Range& b) { return a.begin < b.begin; });
  std::uint64_t end = 0;
  for (elf::Range& section : found) {
    section.begin = std::min(std::max(section.begin, end), section.end);
    end = std::max(end, section.end);
  }
  return found;
}

// All of the executable segments: the sections in them, and what is between those. Without sections everything is code.
std::vector<CodePart> code_parts(const elf::Image& image) {
  const auto sections = code_sections(image);
  std::vector<CodePart> parts;
  for (const elf::Segment& segment : image.segments()) {
    if (!segment.executable) continue;
    std::uint64_t at = segment.address;
    const std::uint64_t end = segment.address + segment.file_bytes;
    for (const elf::Range& section : sections) {
      const elf::Range inside{std::max(section.begin, at), std::min(section.end, end)};
      if (inside.begin >= inside.end) continue;
      parts.push_back({{at, inside.begin}, false});
      parts.push_back({inside, true});
      at = inside.end;
    }
    parts.push_back({{at, end}, sections.empty()});
  }
  std::erase_if(parts, [](const CodePart& part) { return part.range.begin >= part.range.end; });
  return parts;
}

// The code in shares of about the same size, for as many threads, by address. They are cut where a function begins, and an
// instruction certainly does: what is found is the same.
std::vector<std::vector<CodePart>> shared_out(const std::vector<CodePart>& parts,
                                              const std::vector<SweptFunction>& functions,
                                              const std::vector<std::uint64_t>& starts, unsigned threads) {
  constexpr std::uint64_t kLeast = 256 << 10;
  std::uint64_t all = 0, done = 0;
  for (const CodePart& part : parts) all += part.range.end - part.range.begin;
  const std::uint64_t count = std::clamp(all / kLeast, std::uint64_t{1}, std::uint64_t{threads});
  std::vector<std::vector<CodePart>> shares(1);
  for (CodePart part : parts) {
    for (const SweptFunction& function : functions) {
      const std::uint64_t cut = function.range.begin;
      const bool is_full = done + (cut - part.range.begin) >= all * shares.size() / count;
      if (cut <= part.range.begin || cut >= part.range.end || !is_full || shares.size() == count) continue;
      if (!std::binary_search(starts.begin(), starts.end(), cut)) continue;
      shares.back().push_back({{part.range.begin, cut}, part.is_code});
      shares.emplace_back();
      done += cut - part.range.begin;
      part.range.begin = cut;
    }
    shares.back().push_back(part);
    done += part.range.end - part.range.begin;
  }
  if (parts.empty()) shares.clear();
  return shares;
}

bool has_section(const elf::Image& image, std::string_view name) {
  const auto sections = image.sections();
  return std::any_of(sections.begin(), sections.end(), [name](const elf::Section& s) { return s.name == name; });
}

}  // namespace

const char* text_of(FlowTrouble trouble) {
  switch (trouble) {
    case FlowTrouble::none:
      return "";
    case FlowTrouble::undecodable:
      return "the function has bytes that are no instructions";
    case FlowTrouble::overlap:
      return "the function has instructions that overlap";
    case FlowTrouble::jump_table:
      return "an indirect jump of the function is not resolved";
    case FlowTrouble::landing_pads:
      return "the function's landing pads cannot be read";
    case FlowTrouble::unreached:
      return "the function has code that nothing known leads to";
    case FlowTrouble::other_part:
      return "a function that jumps into this one, or this one into it, is not resolved";
    case FlowTrouble::text_relocations:
      return "the dynamic linker changes the file's code";
    case FlowTrouble::no_unwind:
      return "the function has no unwind information";
  }
  return "";
}

unsigned FileFlow::usual_threads() {
  constexpr unsigned kMost = 8;
  return std::clamp(std::thread::hardware_concurrency(), 1U, kMost);
}

FileFlow::FileFlow(const elf::ElfFile& file, unsigned threads) : file_(file), map_(file, FlowMap::Bits::none_yet) {
  const Result<elf::Image> image = elf::Image::parse(elf::BytesView(file.bytes()));
  if (!image) return;
  go_ = go_program_of(*image);
  has_patchable_entries_ = has_section(*image, "__patchable_function_entries") || has_section(*image, "xray_instr_map");
  if (take_kept()) return;
  find_out(*image, threads);
  keep();
}

void FileFlow::find_out(const elf::Image& image, unsigned threads) {
  map_ = FlowMap(file_);
  const auto frames = elf::frames_of(image);
  functions_ = swept_functions(frames, file_.function_ranges());
  const auto starts = file_.known_starts();
  name_all(image, frames, starts);
  resolve_jumps(sweep(image, starts, threads));
  find_unreached();
  spread_trouble();
  if (!image.dynamic(DT_TEXTREL) && (image.dynamic(DT_FLAGS).value_or(0) & DF_TEXTREL) == 0) return;
  for (SweptFunction& function : functions_) function.trouble = FlowTrouble::text_relocations;
}

namespace {

constexpr const char* kKind = "flow";

using FunctionFlag = bool SweptFunction::*;
constexpr std::array<FunctionFlag, 6> kFunctionFlags = {
    &SweptFunction::begins_at_call,  &SweptFunction::takes_label,      &SweptFunction::jumps_by_pointer,
    &SweptFunction::leaves_by_table, &SweptFunction::entered_by_table, &SweptFunction::jumps_anywhere};
constexpr std::uint64_t kFirstFlag = 256;  // below it: the trouble

void pack(facts::Packer& to, const std::vector<SweptFunction>& functions) {
  std::vector<std::array<std::uint64_t, 3>> all;
  all.reserve(functions.size());
  for (const SweptFunction& function : functions) {
    std::uint64_t is = static_cast<std::uint64_t>(function.trouble);
    for (std::size_t i = 0; i < kFunctionFlags.size(); ++i) is |= function.*kFunctionFlags[i] ? kFirstFlag << i : 0;
    all.push_back({function.range.begin, function.range.end, is});
  }
  to.put(all);
}

bool unpack(facts::Unpacker& from, std::vector<SweptFunction>& functions) {
  std::vector<std::array<std::uint64_t, 3>> all;
  if (!from.take(all)) return false;
  functions.reserve(all.size());
  for (const auto& [begin, end, is] : all) {
    const std::uint64_t trouble = is % kFirstFlag;
    if (trouble > static_cast<std::uint64_t>(FlowTrouble::no_unwind)) return false;
    SweptFunction& function = functions.emplace_back();
    function.range = {begin, end};
    function.trouble = static_cast<FlowTrouble>(trouble);
    for (std::size_t i = 0; i < kFunctionFlags.size(); ++i) function.*kFunctionFlags[i] = (is & kFirstFlag << i) != 0;
  }
  return true;
}

}  // namespace

void FileFlow::keep() const {
  const auto key = file_.facts_key();
  if (!key) return;
  facts::Packer to;
  map_.pack(to);
  pack(to, functions_);
  for (const auto* addresses : {&pointer_jumps_, &table_targets_, &block_rows_}) to.put(*addresses);
  facts::keep(*key, kKind, to.bytes());
}

bool FileFlow::take_kept() {
  const auto key = file_.facts_key();
  const auto bytes = key ? facts::find(*key, kKind) : std::nullopt;
  if (!bytes) return false;
  facts::Unpacker from(bytes->span());
  FlowMap map(file_, FlowMap::Bits::none_yet);
  std::vector<SweptFunction> functions;
  std::array<std::vector<std::uint64_t>, 3> addresses;
  const bool is_whole = map.unpack(from) && unpack(from, functions) &&
                        std::ranges::all_of(addresses, [&](auto& all) { return from.take(all); }) && from.is_done();
  if (!is_whole) return false;
  map_ = std::move(map), functions_ = std::move(functions);
  pointer_jumps_ = std::move(addresses[0]);
  table_targets_ = std::move(addresses[1]), block_rows_ = std::move(addresses[2]);
  return true;
}

// Everything but the code itself that names addresses.
void FileFlow::name_all(const elf::Image& image, const std::vector<elf::Frame>& frames,
                        const std::vector<std::uint64_t>& starts) {
  for (const elf::Symbol& symbol : file_.functions()) map_.enter(symbol.address);
  for (const std::uint64_t start : starts) map_.enter(start);
  for (const std::uint64_t pointer : elf::code_pointers(image))
    if (map_.code_at(pointer) != nullptr) map_.name(pointer);
  std::uint64_t left = 2 * file_.bytes().size();  // functions do not overlap
  for (const elf::Frame& frame : frames) {
    // An entry covers an instruction at least.
    const std::uint64_t most = std::min(left, frame.code.end - frame.code.begin);
    const auto pads = elf::landing_pads(image, frame, most);
    left -= most;
    if (pads)
      for (const std::uint64_t pad : *pads) map_.enter(pad);
    else if (const auto index = function_index(functions_, frame.code.begin))
      functions_[*index].trouble = FlowTrouble::landing_pads;
  }
}

std::vector<JumpingFunction> FileFlow::sweep(const elf::Image& image, const std::vector<std::uint64_t>& starts,
                                             unsigned threads) {
  std::vector<Share> shares;
  for (std::vector<CodePart>& parts : shared_out(code_parts(image), functions_, starts, threads))
    shares.push_back({std::move(parts), FlowMap(file_), functions_, {}});
  std::vector<std::future<void>> others;
  const auto run = [&](Share& share) {
    Sweep sweep(share.map, share.functions, starts, file_.is_position_independent());
    for (const CodePart& part : share.parts) sweep.run(part.range, part.is_code);
    share.jumping = sweep.take_jumping();
  };
  // Where no thread can be had, it is done when it is asked for.
  for (std::size_t i = 1; i < shares.size(); ++i)
    others.push_back(std::async(std::launch::async | std::launch::deferred, run, std::ref(shares[i])));
  if (!shares.empty()) run(shares.front());
  for (std::future<void>& other : others) other.get();
  return join(shares);
}

// What each share says of its own functions; an instruction across its end concerns the next one's first as well.
std::vector<JumpingFunction> FileFlow::join(std::vector<Share>& shares) {
  std::vector<JumpingFunction> jumping;
  for (Share& share : shares) {
    map_.add(share.map);
    const std::uint64_t begin = share.parts.front().range.begin, end = share.parts.back().range.end;
    for (std::size_t i = 0; i < functions_.size(); ++i) {
      const SweptFunction& its = share.functions[i];
      if (its.range.begin >= begin && its.range.begin < end) functions_[i] = its;
    }
    jumping.insert(jumping.end(), share.jumping.begin(), share.jumping.end());
  }
  for (const Share& share : shares)
    for (std::size_t i = 0; i < functions_.size(); ++i)
      if (share.functions[i].trouble == FlowTrouble::overlap) functions_[i].trouble = FlowTrouble::overlap;
  return jumping;
}

// A resolved table names addresses, which may be on the way to another jump: again until nothing new is named.
void FileFlow::resolve_jumps(const std::vector<JumpingFunction>& jumping) {
  // Perl, of fourteen programs and libraries the one that needs most, takes 95,000.
  std::size_t steps = kLeastSteps + map_.bytes();
  for (bool is_new = true; is_new;) {
    is_new = false;
    pointer_jumps_.clear();
    for (const JumpingFunction& one : jumping) is_new |= resolve_function(one, steps);
  }
  std::sort(pointer_jumps_.begin(), pointer_jumps_.end());
  for (std::vector<std::uint64_t>* places : {&table_targets_, &block_rows_}) {
    std::sort(places->begin(), places->end());
    places->erase(std::unique(places->begin(), places->end()), places->end());
  }
  // Label differences added to a label: the labels need not be named anywhere.
  for (SweptFunction& function : functions_)
    if (function.takes_label && function.jumps_by_pointer) note_unresolved(function);
}

void FileFlow::note_unresolved(SweptFunction& function) {
  if (function.trouble == FlowTrouble::none) function.trouble = FlowTrouble::jump_table;
  if (function.trouble == FlowTrouble::no_unwind) function.jumps_anywhere = true;
}

void FileFlow::note_table(SweptFunction& from, std::uint64_t target) {
  if (target >= from.range.begin && target < from.range.end) return;
  from.leaves_by_table = true;
  if (const auto into = function_index(functions_, target)) functions_[*into].entered_by_table = true;
}

// True if an address is named that was not before.
bool FileFlow::resolve_function(const JumpingFunction& jumping, std::size_t& steps) {
  SweptFunction& function = functions_[jumping.function];
  if (function.trouble != FlowTrouble::none && function.trouble != FlowTrouble::no_unwind) return false;
  const FunctionCode code(map_, function.range, jumping, steps);
  bool is_new = false;
  for (const std::uint64_t jump : jumping.register_jumps) {
    const JumpTargets found = targets_of_jump(map_, code, jump);
    if (!found.is_known) note_unresolved(function);
    function.jumps_by_pointer |= found.has_pointers;
    if (found.has_pointers) pointer_jumps_.push_back(jump);
    block_rows_.insert(block_rows_.end(), found.blocks.begin(), found.blocks.end());
    for (const std::uint64_t target : found.targets) {
      note_table(function, target);
      table_targets_.push_back(target);
      SegmentMap* segment = map_.at(target);
      is_new |= !segment->entered.test(target);
      segment->entered.set(target);
    }
  }
  return is_new;
}

bool FileFlow::is_undefined(std::uint64_t address) const {
  arch::Scanned insn;
  return arch::scan(bytes_at(address), Addr{address}, insn) && insn.is_undefined;
}

void FileFlow::find_unreached() {
  for (SweptFunction& function : functions_) {
    const SegmentMap* code = map_.code_at(function.range.begin);
    if (function.trouble != FlowTrouble::none || code == nullptr) continue;
    if (has_unreached(function.range, *code)) function.trouble = FlowTrouble::unreached;
    if (!is_consistent(function, *code)) function.trouble = FlowTrouble::overlap;
  }
}

// Code after a jump or a return that nothing leads to shows that something leads there in a way that is not known.
bool FileFlow::has_unreached(const elf::Range& range, const SegmentMap& code) const {
  std::uint64_t reached = range.begin;
  while (const auto stop = code.stops.next(reached, range.end)) {
    // abort() goes round a loop after a hlt in case that it comes back.
    reached = *stop + 1;
    if (is_undefined(*stop)) continue;
    auto next = code.starts.next(reached, range.end);
    while (next && code.padding.test(*next) && !code.is_arrival(*next)) next = code.starts.next(*next + 1, range.end);
    if (!next) return false;
    if (!code.is_arrival(*next) && !is_undefined(*next)) return true;
    reached = *next;
  }
  return false;
}

// Whether every branch leads to an instruction: or after a prefix, as glibc jumps over the lock of a single-threaded
// program. What values name need not be code.
bool FileFlow::is_consistent(const SweptFunction& function, const SegmentMap& code) const {
  const elf::Range& range = function.range;
  for (const AddressBits* bits : {&code.jumped, &code.entered})
    for (auto at = bits->next(range.begin, range.end); at; at = bits->next(*at + 1, range.end)) {
      if (code.starts.test(*at)) continue;
      if (!code.starts.test(*at - 1) || !arch::is_skippable_prefix(bytes_at(*at - 1)[0])) return false;
    }
  return true;
}

// The parts of a function that a compiler set apart (.cold) share its jump tables.
void FileFlow::spread_trouble() {
  std::vector<std::size_t> parts;
  for (const SweptFunction& function : functions_) {
    const SegmentMap* code = map_.code_at(function.range.begin);
    if (function.trouble == FlowTrouble::none || function.trouble == FlowTrouble::no_unwind || code == nullptr)
      continue;
    const elf::Range& range = function.range;
    for (auto at = code->starts.next(range.begin, range.end); at; at = code->starts.next(*at + 1, range.end)) {
      arch::Scanned insn;
      if (!arch::scan(bytes_at(*at), Addr{*at}, insn)) continue;
      if (insn.leads != Leads::jump && insn.leads != Leads::jump_if) continue;
      if (const auto part = function_index(functions_, insn.target)) parts.push_back(*part);
    }
  }
  for (const std::size_t part : parts)
    if (functions_[part].trouble == FlowTrouble::none) functions_[part].trouble = FlowTrouble::other_part;
}

const SweptFunction* FileFlow::swept_at(std::uint64_t address) const {
  const auto index = function_index(functions_, address);
  return index ? &functions_[*index] : nullptr;
}

std::optional<FunctionFlow> FileFlow::function_at(std::uint64_t address) const {
  const SweptFunction* function = swept_at(address);
  if (function == nullptr) return std::nullopt;
  return FunctionFlow{function->range, function->trouble, function->jumps_anywhere};
}

bool FileFlow::is_arrival(std::uint64_t address) const {
  const SegmentMap* code = map_.code_at(address);
  return code != nullptr && code->is_arrival(address);
}

bool FileFlow::is_entered(std::uint64_t address) const {
  const SegmentMap* code = map_.code_at(address);
  return code != nullptr && code->entered.test(address);
}

bool FileFlow::has_arrival(std::uint64_t from, std::uint64_t limit) const {
  const SegmentMap* code = map_.code_at(from);
  return code != nullptr &&
         (code->named.next(from, limit) || code->jumped.next(from, limit) || code->entered.next(from, limit));
}

bool FileFlow::is_named_in(std::uint64_t from, std::uint64_t limit) const {
  const SegmentMap* code = map_.code_at(from);
  return code != nullptr && code->named.next(from, limit).has_value();
}

bool FileFlow::is_pointer_jump(std::uint64_t address) const {
  return std::binary_search(pointer_jumps_.begin(), pointer_jumps_.end(), address);
}

std::vector<std::uint64_t> FileFlow::table_at(std::uint64_t address) const {
  return read_jump_table(map_, address, address);
}

bool FileFlow::is_start(std::uint64_t address) const {
  const SegmentMap* code = map_.code_at(address);
  return code != nullptr && code->starts.test(address);
}

bool FileFlow::is_stop(std::uint64_t address) const {
  const SegmentMap* code = map_.code_at(address);
  return code != nullptr && code->stops.test(address);
}

bool FileFlow::is_padding(std::uint64_t address) const {
  const SegmentMap* code = map_.code_at(address);
  return code != nullptr && code->padding.test(address);
}

std::optional<std::uint64_t> FileFlow::next_stop(std::uint64_t from, std::uint64_t limit) const {
  const SegmentMap* code = map_.code_at(limit - 1);
  if (code == nullptr) code = map_.code_at(from);
  return code == nullptr ? std::nullopt : code->stops.next(from, limit);
}

std::optional<std::uint64_t> FileFlow::next_start(std::uint64_t from, std::uint64_t limit) const {
  const SegmentMap* code = map_.code_at(from);
  return code == nullptr ? std::nullopt : code->starts.next(from, limit);
}

std::optional<std::uint64_t> FileFlow::last_start(std::uint64_t from, std::uint64_t limit) const {
  const SegmentMap* code = map_.code_at(limit - 1);
  return code == nullptr ? std::nullopt : code->starts.last(from, limit);
}

std::size_t FileFlow::memory() const {
  return map_.bytes() + functions_.capacity() * sizeof(SweptFunction) +
         (pointer_jumps_.capacity() + table_targets_.capacity()) * sizeof(std::uint64_t);
}

}  // namespace uprobe::plan
