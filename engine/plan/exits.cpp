// SPDX-License-Identifier: MIT
#include "engine/plan/exits.h"

#include <algorithm>
#include <optional>
#include <string>

#include "arch/code/instruction_bytes.h"
#include "arch/code/scan.h"
#include "arch/code/stack_patterns.h"
#include "engine/base/text.h"
#include "engine/plan/bare_function.h"

namespace uprobe::plan {
namespace {

using arch::Leads;
using arch::StackMove;

class Finder {
 public:
  Finder(const FileFlow& flow, const FunctionEntries& entries, std::uint64_t entry)
      : flow_(flow), entries_(entries), entry_(entry) {}

  Result<std::vector<Exit>> run() {
    if (!add_part(entry_)) return refusal();
    if (parts_[0].begin != entry_) {
      refuse("is not where its unwind information has the function begin, " + place(parts_[0].begin));
      return refusal();
    }
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (!read_part(elf::Range(parts_[i]))) return refusal();
    if (!check_entries()) return refusal();
    if (exits_.empty()) refuse("never returns: it has no return instruction");
    if (!why_.empty()) return refusal();
    std::sort(exits_.begin(), exits_.end(), [](const Exit& a, const Exit& b) { return a.address < b.address; });
    return std::move(exits_);
  }

 private:
  enum class Target { part, function, unknown };

  Error refusal() const { return Error{.code = Code::refused, .text = why_}; }
  bool refuse(std::string why) {
    why_ = std::move(why);
    return false;
  }
  std::string place(std::uint64_t address) const {
    return hex(flow_.file().offset_of_address(address).value_or(address));
  }
  bool is_ours(std::uint64_t address) const {
    return std::any_of(parts_.begin(), parts_.end(), [=](const elf::Range& part) { return part.holds(address); });
  }

  // Go's compiler makes all of its functions, and no unwind information.
  bool is_known(const SweptFunction& part) const {
    const bool is_go = part.trouble == FlowTrouble::no_unwind && flow_.is_go() && !part.jumps_anywhere;
    return part.trouble == FlowTrouble::none || is_go;
  }

  bool add_part(std::uint64_t address) {
    constexpr std::size_t kMostParts = 64, kMostCrossings = 4096;  // two or three, and a handful
    const SweptFunction* part = flow_.swept_at(address);
    if (part == nullptr) return refuse("has no unwind information: its returns are not known");
    if (parts_.empty() && part->trouble == FlowTrouble::no_unwind && !flow_.is_go()) return add_bare(*part);
    if (!is_known(*part)) return refuse(std::string("has returns that are not known: ") + text_of(part->trouble));
    if (part->leaves_by_table || part->entered_by_table)
      return refuse("shares a jump table with another function, or with a part of its own");
    parts_.push_back(part->range);
    if (parts_.size() <= kMostParts && entries_.into({part->range.begin + 1, part->range.end}).size() <= kMostCrossings)
      return true;
    return refuse("is too tangled with other functions");
  }

  // The flow of such a function is not followed into others.
  bool add_bare(const SweptFunction& function) {
    const std::string why = reason_against_bare(flow_, function);
    if (!why.empty()) return refuse(why);
    if (function.entered_by_table || entries_.is_pointed_into({function.range.begin + 1, function.range.end}))
      return refuse("has no unwind information, and a pointer leads into it");
    parts_.push_back(function.range);
    return true;
  }

  bool read_part(const elf::Range& part) {
    arch::Scanned insn;
    std::uint64_t last = part.begin;
    for (auto at = flow_.next_start(part.begin, part.end); at; at = flow_.next_start(*at + 1, part.end)) {
      if (!arch::scan(flow_.bytes_at(*at), Addr{*at}, insn)) return refuse("has bytes that are no instructions");
      note_stack(*at, insn);
      if (!read_insn(*at, insn)) return false;
      if (!insn.is_padding) last = *at;
    }
    // A call is the last thing where it does not come back.
    if (!arch::scan(flow_.bytes_at(last), Addr{last}, insn)) return refuse("has bytes that are no instructions");
    const bool is_call = insn.leads == Leads::call || insn.leads == Leads::call_indirect;
    if (insn.falls_through && !is_call) return refuse("goes on past its end, " + place(part.end));
    return true;
  }

  // Along the code that comes before a return without a branch.
  void note_stack(std::uint64_t at, const arch::Scanned& insn) {
    const StackMove move = arch::stack_move_of(flow_.bytes_at(at).first(insn.length));
    const bool is_elsewhere = insn.leads != Leads::on && insn.leads != Leads::out;
    if (is_elsewhere || flow_.is_arrival(at) || move == StackMove::to_frame) on_another_stack_ = false;
    if (move == StackMove::to_another) on_another_stack_ = true;
  }

  bool read_insn(std::uint64_t at, const arch::Scanned& insn) {
    switch (insn.leads) {
      case Leads::jump:
      case Leads::jump_if:
        return is_ours(insn.target) || read_jump(at, insn);
      case Leads::jump_by_register:
        if (flow_.is_pointer_jump(at)) pointer_jump(at);
        return true;
      case Leads::jump_by_memory:
        pointer_jump(at);
        return true;
      case Leads::out:
        return read_return(at, insn);
      default:
        return true;
    }
  }

  bool read_return(std::uint64_t at, const arch::Scanned& insn) {
    const auto code = flow_.bytes_at(at).first(insn.length);
    const auto decoded = arch::decode(code, Addr{at});
    if (!decoded || !decoded->is_return) return true;
    const std::uint16_t pops = arch::popped_by(code);
    if (pops == 0 || on_another_stack_)
      return refuse("has at " + place(at) + " a return instruction that is none of a call");
    on_another_stack_ = false;
    exits_.push_back({at, pops, false});
    return true;
  }

  bool read_jump(std::uint64_t at, const arch::Scanned& insn) {
    switch (classify(insn.target)) {
      case Target::part:
        return add_part(insn.target);
      case Target::function:
        if (insn.leads == Leads::jump_if) return refuse("ends in another function under a condition, at " + place(at));
        exits_.push_back({at, 8, true});
        return true;
      case Target::unknown:
        break;
    }
    return refuse("jumps at " + place(at) + " to what may be a part of it or another function");
  }

  void pointer_jump(std::uint64_t at) {
    pointer_jump_ = at;
    exits_.push_back({at, 8, true});
  }

  // Code that no other function reaches is a part, whatever its name is: its returns are returns from here.
  Target classify(std::uint64_t target) const {
    if (is_linkage(target)) return Target::function;
    const SweptFunction* to = flow_.swept_at(target);
    if (to == nullptr) return Target::unknown;
    if (to->range.begin != target) return Target::part;
    if (name_at(target) == Name::part || leads_back(to->range)) return Target::part;
    if (name_at(target) == Name::function || entries_.is_called(target)) return Target::function;
    return flow_.is_named_in(target, target + 1) ? Target::unknown : Target::part;
  }

  // An entry of the procedure linkage table.
  bool is_linkage(std::uint64_t target) const {
    const auto bytes = flow_.bytes_at(target);
    const std::size_t pad = arch::landing_pad_bytes(bytes);
    const auto code = bytes.subspan(pad);
    target += pad;
    arch::Scanned insn;
    return arch::scan(code, Addr{target}, insn) && insn.leads == Leads::jump_by_memory && insn.is_ip_relative;
  }

  enum class Name { none, part, function };

  static bool is_name_of_part(const std::string& name) {
    return name.find(".cold") != std::string::npos || name.find(".__part.") != std::string::npos;
  }

  // What the symbols say of an address: "f.cold", "f.cold.12" and clang's "f.__part.3" are parts.
  Name name_at(std::uint64_t address) const {
    Name found = Name::none;
    for (const elf::Symbol& symbol : flow_.file().functions_from(address)) {
      if (symbol.address != address) break;
      if (is_name_of_part(symbol.name)) return Name::part;
      found = Name::function;
    }
    return found;
  }

  bool leads_back(const elf::Range& from) const {
    const auto is_from = [&](const Crossing& c) { return from.holds(c.source); };
    return std::any_of(parts_.begin(), parts_.end(), [&](const elf::Range& part) {
      const auto after = entries_.into({part.begin + 1, part.end});
      return std::any_of(after.begin(), after.end(), is_from);
    });
  }

  // Whether every path to a return of the function begins at its entry.
  bool check_entries() {
    for (const elf::Range& part : parts_)
      if (!check_pointers(part) || !check_symbols(part) || !check_crossings(part) || !check_before(part)) return false;
    return true;
  }

  // A pointer may lead back into the function only if something names an address inside.
  bool check_pointers(const elf::Range& part) {
    if (!pointer_jump_ || !flow_.is_named_in(part.begin + 1, part.end)) return true;
    return refuse("jumps at " + place(*pointer_jump_) + " through a pointer that may lead anywhere");
  }

  bool check_symbols(const elf::Range& part) {
    for (const elf::Symbol& symbol : flow_.file().functions_from(part.begin)) {
      if (symbol.address >= part.end) break;
      if (symbol.address == entry_ || (symbol.is_label && !symbol.dynamic)) continue;
      if (symbol.address == part.begin && name_at(part.begin) == Name::part) continue;
      return refuse("shares its returns with " + symbol.name + ", which begins inside of it at " +
                    place(symbol.address));
    }
    if (part.begin == entry_ || name_at(part.begin) == Name::part) return true;
    const bool is_named = flow_.is_named_in(part.begin, part.begin + 1);
    if (!is_named && !entries_.is_called(part.begin)) return true;
    return refuse("shares its returns with a function at " + place(part.begin));
  }

  bool check_crossings(const elf::Range& part) {
    for (const Crossing& crossing : entries_.into(part)) {
      const bool is_entry = crossing.target == entry_;
      arch::Scanned insn;
      const bool is_call = arch::scan(flow_.bytes_at(crossing.source), Addr{crossing.source}, insn) &&
                           (insn.leads == Leads::call || insn.leads == Leads::call_indirect);
      if (is_entry || (is_ours(crossing.source) && !is_call)) continue;
      return refuse("shares its returns: " + place(crossing.source) + " jumps into it or into a part of it");
    }
    return true;
  }

  // The code in front of it must not run into it.
  bool check_before(const elf::Range& part) {
    constexpr std::uint64_t kFar = 256;
    std::uint64_t at = part.begin;
    arch::Scanned insn;
    do {
      const auto before = flow_.last_start(at - std::min(at, kFar), at);
      if (!before || !arch::scan(flow_.bytes_at(*before), Addr{*before}, insn)) return true;
      at = *before;
    } while (insn.is_padding && part.begin - at < kFar);
    const bool is_call = insn.leads == Leads::call || insn.leads == Leads::call_indirect;
    if (!insn.falls_through || is_call || insn.is_padding || !flow_.swept_at(at)) return true;
    return refuse("shares its returns: the code in front of it runs into it");
  }

  const FileFlow& flow_;
  const FunctionEntries& entries_;
  std::uint64_t entry_;
  std::vector<elf::Range> parts_;
  std::vector<Exit> exits_;
  std::optional<std::uint64_t> pointer_jump_;
  bool on_another_stack_ = false;  // the code up to here has moved the stack pointer away from the function's frame
  std::string why_;
};

}  // namespace

Result<std::vector<Exit>> exits_of(const FileFlow& flow, const FunctionEntries& entries, std::uint64_t entry) {
  return Finder(flow, entries, entry).run();
}

}  // namespace uprobe::plan
