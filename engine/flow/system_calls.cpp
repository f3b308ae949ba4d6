// SPDX-License-Identifier: MIT
#include "engine/flow/system_calls.h"

#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "arch/code/call_patterns.h"
#include "arch/code/relocate.h"
#include "arch/code/scan.h"
#include "engine/elf/image.h"
#include "engine/facts/kept_facts.h"
#include "engine/flow/followed_calls.h"
#include "engine/flow/go_program.h"

namespace uprobe::plan {
namespace {

using arch::Bytes;
using arch::Leads;

constexpr std::uint32_t kFromMemory = ~1u;  // no constant

shared::PointRole clone_role(std::uint32_t number) {
  if (number == SYS_vfork) return shared::PointRole::vfork_return;
  if (number == SYS_fork) return shared::PointRole::fork_return;
  return number == SYS_clone3 ? shared::PointRole::clone3_return : shared::PointRole::clone_return;
}

// Whether a function names exit_group. glibc's _exit keeps the number in another register and goes round a loop, so that
// the last one that is loaded says nothing.
bool names_exit_group(Bytes code) { return arch::names_call(code, SYS_exit_group); }

// Of sites from `first` on, those that a branch of their function leads to: their calls are watched themselves.
void watch_calls_entered(std::vector<SystemCallSite>& sites, std::size_t first,
                         const std::vector<std::uint64_t>& targets) {
  for (std::size_t i = first; i < sites.size(); ++i) {
    const std::uint64_t call = sites[i].offset + shared::kBeforeOpen;
    if (sites[i].role != shared::PointRole::open_call || std::count(targets.begin(), targets.end(), call) == 0)
      continue;
    sites[i] = {call, shared::PointRole::system_call};
  }
}

// Whether a jump fits on an instruction: it must not lie in two pages, of which one may be written without the other.
bool has_room(Bytes insn, std::uint64_t address) {
  constexpr std::uint64_t kPage = 4096;
  return insn.size() >= shared::kJumpBytes && address % kPage <= kPage - shared::kJumpBytes;
}

// Which points a function may have.
struct Choice {
  bool any;            // at each call
  bool before = true;  // before calls
};

// Walks one function; adds its interesting sites.
void scan_function(Bytes code, std::uint64_t begin, std::uint64_t offset, const Choice& choice,
                   std::vector<SystemCallSite>& sites) {
  const std::size_t first = sites.size();
  std::vector<std::uint64_t> targets;  // of branches, as file offsets
  Bytes before;
  arch::Scanned insn;
  std::uint32_t number = ~0u;
  std::array<std::uint32_t, arch::kGeneralRegisters> loaded;
  loaded.fill(~0u);
  for (std::size_t at = 0; at < code.size();) {
    const Bytes rest = code.subspan(at);
    if (!arch::scan(rest, Addr{begin + at}, insn)) break;
    if (insn.leads == Leads::jump || insn.leads == Leads::jump_if) targets.push_back(insn.target - begin + offset);
    if (arch::loads_number_from_memory(rest.first(insn.length))) number = kFromMemory;
    if (const auto load = arch::register_load(rest.first(insn.length))) loaded[load->reg] = load->number;
    if (const auto reg = arch::copied_to_number(rest.first(insn.length))) number = loaded[*reg];
    if (const auto load = arch::number_load_ending(code, at + insn.length); load && arch::is_whole(*load, at))
      number = load->number;
    if (insn.leads == Leads::call || insn.leads == Leads::call_indirect) number = ~0u;
    const bool is_syscall = arch::is_system_call(rest.first(insn.length));
    const std::uint64_t load = at - before.size();
    if (is_syscall && choice.before && !choice.any && is_open_call(number) && arch::is_load_before_open(before))
      sites.push_back({offset + at - shared::kBeforeOpen, shared::PointRole::open_call});
    else if (is_syscall && (choice.any || number == kFromMemory || is_followed_call(number)))
      sites.push_back({.offset = offset + at, .maps_memory = number == SYS_mmap});
    const bool is_quick = is_syscall && choice.before && is_quick_call(number) && arch::is_load_before_call(before);
    if (is_quick && has_room(before, begin + load))
      sites.push_back({.offset = offset + load, .role = shared::PointRole::quick_call});
    if (is_syscall && is_clone_call(number))
      sites.push_back({offset + at + shared::kSystemCallBytes, clone_role(number)});
    before = rest.first(insn.length);
    at += insn.length;
  }
  watch_calls_entered(sites, first, targets);
}

// The function that contains an address. Hand-written ones (vfork in musl) have a symbol without a size: they are taken to go
// on a little after the address.
std::optional<elf::Range> function_at(const elf::ElfFile& file, std::uint64_t address) {
  constexpr std::uint64_t kLongest = 128, kAfter = 16;
  if (const auto range = file.range_at(address)) return range;
  const auto functions = file.functions();
  const auto next = std::upper_bound(functions.begin(), functions.end(), address,
                                     [](std::uint64_t a, const elf::Symbol& s) { return a < s.address; });
  if (next == functions.begin() || address - (next - 1)->address > kLongest) return std::nullopt;
  return elf::Range{(next - 1)->address, address + kAfter};
}

// A call in code of unknown extent: the number is loaded right before, and decoding leads from there to the call.
void add_by_pattern(Bytes code, std::size_t at, std::uint64_t address, std::uint64_t offset, bool before,
                    std::vector<SystemCallSite>& sites) {
  const auto load = arch::number_before(code, at);
  if (!load || (!is_followed_call(load->number) && !is_clone_call(load->number))) return;
  std::size_t place = load->position, last = place;
  while (place < at) {
    last = place;
    const auto insn = arch::decode(code.subspan(place), Addr{address + place});
    if (!insn || (insn->is_call && !load->outlives_calls) || insn->is_return) return;
    place += insn->length;
  }
  if (place != at) return;
  if (is_clone_call(load->number))
    sites.push_back({offset + at + shared::kSystemCallBytes, clone_role(load->number)});
  else
    sites.push_back({offset + at, shared::PointRole::system_call});
  // What looks like the load may be the end of another instruction that begins with a prefix.
  const bool is_quick = before && is_quick_call(load->number) && !arch::may_follow_prefix(code, load->position);
  const Bytes insn = code.subspan(last, at - last);
  if (is_quick && arch::is_load_before_call(insn) && has_room(insn, address + last))
    sites.push_back({.offset = offset + last, .role = shared::PointRole::quick_call});
}

// Where handlers return to: bytes that debuggers and unwinders know, so they are the same everywhere. Code without
// unwind information, as in musl, is left alone: there the unwinders have nothing but the bytes (see preload/returns.cpp).
bool is_signal_return(const elf::ElfFile& file, Bytes code, std::size_t at, std::uint64_t address) {
  return arch::is_signal_return(code, at) && file.is_signal_return(address);
}

// Of all programs and libraries looked at, Chromium has most: some hundreds. A file may be made to have more than can be looked at
// while other processes wait.
constexpr std::size_t kMostCalls = 16384;

Error too_many_calls() { return Error{.code = Code::limit, .text = "it has more system calls than any real program"}; }

// Functions that may run on a stack with no more room than they need themselves.
std::vector<std::uint64_t> functions_on_small_stacks(const elf::ElfFile& file) {
  std::vector<std::uint64_t> found;
  for (const char* name : {"getcontext", "setcontext", "swapcontext"})
    if (const auto symbol = file.find_any(name)) found.push_back(symbol->address);
  return found;
}

bool is_go(const elf::ElfFile& file) {
  const auto image = elf::Image::parse(elf::BytesView(file.bytes()));
  return image && go_program_of(*image) != GoProgram::none;
}

// What of a segment is to be looked at: functions that contain the bytes of a call; calls outside of any known function are
// added at once.
Result<std::vector<elf::Range>> functions_with_syscalls(const elf::ElfFile& file, bool before,
                                                        std::vector<SystemCallSite>& sites) {
  std::vector<elf::Range> found;
  std::size_t calls = 0;
  for (const elf::Segment& s : file.segments()) {
    if (!s.executable || s.offset > file.bytes().size()) continue;
    const Bytes code =
        file.bytes().subspan(s.offset, std::min<std::uint64_t>(s.file_bytes, file.bytes().size() - s.offset));
    for (std::size_t place = 0; (place = arch::next_system_call(code, place)) < code.size(); ++place) {
      if (++calls > kMostCalls) return too_many_calls();
      const auto range = function_at(file, s.address + place);
      const bool returns = is_signal_return(file, code, place, s.address + place);
      if (returns || arch::is_cancellable_call(code, place) || arch::is_any_call(code, place, Addr{s.address + place}))
        sites.push_back({s.offset + place, shared::PointRole::system_call, returns});
      else if (!range)
        add_by_pattern(code, place, s.address, s.offset, before, sites);
      else if (found.empty() || found.back().begin != range->begin)
        found.push_back(*range);
    }
  }
  return found;
}

// Functions may overlap, so that one call is found in each of many.
Result<std::vector<SystemCallSite>> look_for_calls(const elf::ElfFile& file, bool ends) {
  const auto generic = file.find_any("syscall");
  std::vector<SystemCallSite> sites;
  const bool may_jump = !is_go(file);
  const auto functions = functions_with_syscalls(file, may_jump, sites);
  if (!functions) return functions.error();
  const std::vector<std::uint64_t> small = functions_on_small_stacks(file);
  std::uint64_t left = 2 * file.bytes().size();
  for (const elf::Range& range : *functions) {
    const auto offset = file.offset_of_address(range.begin);
    if (!offset || *offset >= file.bytes().size()) continue;
    const Bytes code = file.bytes().subspan(*offset, std::min(range.end - range.begin, file.bytes().size() - *offset));
    if (code.size() > left || sites.size() > kMostCalls) return too_many_calls();
    left -= code.size();
    const bool any = generic && generic->address == range.begin;
    const bool is_on_small = std::count(small.begin(), small.end(), range.begin) != 0;
    const Choice choice{.any = any || (ends && names_exit_group(code)), .before = may_jump && !is_on_small};
    scan_function(code, range.begin, *offset, choice, sites);
  }
  return sites;
}

struct CallsForm {
  using Facts = Result<std::vector<SystemCallSite>>;
  static constexpr std::uint64_t kReturns = 1, kMaps = 2, kTooMany = ~std::uint64_t{0};

  static void pack(facts::Packer& to, const Facts& sites) {
    to.put(sites ? sites->size() : kTooMany);
    if (!sites) return;
    for (const SystemCallSite& site : *sites)
      for (const std::uint64_t number : {site.offset, std::uint64_t{static_cast<std::uint32_t>(site.role)},
                                         (site.is_signal_return ? kReturns : 0) | (site.maps_memory ? kMaps : 0)})
        to.put(number);
  }
  static std::optional<Facts> unpack(facts::Unpacker& from) {
    std::vector<SystemCallSite> sites;
    std::uint64_t left = 0;
    if (!from.take(left)) return std::nullopt;
    if (left == kTooMany) return too_many_calls();
    for (; left != 0; --left) {
      SystemCallSite site;
      std::uint64_t role = 0, is = 0;
      const bool is_whole = from.take(site.offset) && from.take(role) && from.take(is);
      if (!is_whole || role > static_cast<std::uint32_t>(shared::PointRole::quick_call)) return std::nullopt;
      site.role = static_cast<shared::PointRole>(role);
      site.is_signal_return = (is & kReturns) != 0, site.maps_memory = (is & kMaps) != 0;
      sites.push_back(site);
    }
    return sites;
  }
};

}  // namespace

Result<std::vector<SystemCallSite>> system_call_sites(const elf::ElfFile& file, bool ends) {
  return facts::kept_or_found<CallsForm>(file.facts_key(), ends ? "ends" : "calls",
                                         [&] { return look_for_calls(file, ends); });
}

}  // namespace uprobe::plan
