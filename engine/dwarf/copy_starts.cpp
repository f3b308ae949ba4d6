// SPDX-License-Identifier: MIT
#include "engine/dwarf/copy_starts.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/dwarf/body.h"

namespace uprobe::dwarf {
namespace {

using Copy = DebugInfo::Handles::Copy;

constexpr const char* kUnknown = "no known start";
constexpr const char* kPart = "in another copy of the function, perhaps as a part of it";
constexpr const char* kDuplicated = "duplicated by the compiler";
constexpr const char* kWaysAround = "there are ways around the start";
constexpr const char* kLoop = "the start is in a loop of its own";
constexpr const char* kShared = "the start is another's, too";
constexpr const char* kPacked = "one pass is several calls";

// The place of a function's name in its source.
struct Declared {
  std::string_view file;  // the last part of its path
  int line = 0, column = 0;
};

std::string_view last_part(const char* path) {
  const std::string_view text = path == nullptr ? "" : path;
  return text.substr(text.rfind('/') + 1);
}

int coordinate(Dwarf_Die die, unsigned name) {
  return static_cast<int>(std::min<std::uint64_t>(number_in(die, name).value_or(0), INT32_MAX));
}

Declared declared(Dwarf_Die copy) {
  return {last_part(declaring_source(copy)), coordinate(copy, DW_AT_decl_line), coordinate(copy, DW_AT_decl_column)};
}

// Before DWARF 5 an address, in DWARF 5 perhaps the distance from the first.
std::optional<std::uint64_t> entry_of(Dwarf_Die copy, const std::vector<elf::Range>& ranges) {
  Dwarf_Attribute attribute;
  Dwarf_Addr address = 0;
  Dwarf_Word distance = 0;
  if (dwarf_attr(&copy, DW_AT_entry_pc, &attribute) == nullptr) return {};
  if (dwarf_formaddr(&attribute, &address) == 0) return address;
  if (ranges.size() != 1 || dwarf_formudata(&attribute, &distance) != 0) return {};
  return ranges.front().begin + distance;
}

// A place in the line table: an address and its view.
using Mark = std::pair<std::uint64_t, unsigned>;

// A copy while it is judged.
struct Judged {
  Copy* copy = nullptr;
  std::vector<elf::Range> ranges;
  std::optional<std::uint64_t> entry;  // as the debug information calls it
  unsigned view = 0;
  std::optional<std::uint64_t> start;
  const char* problem = nullptr;

  bool is_entry(const Mark& mark) const { return entry == mark.first && view == mark.second; }
};

class Judge {
 public:
  Judge(const DebugInfo::Handles& handles, std::span<Copy* const> copies);

  void judge();

 private:
  void find_marks();
  void take_mark(const Mark& mark);
  void take_code(Judged& one) const;
  bool is_entered_at(const elf::Range& range) const;
  bool has_one_pass_of_rows(const elf::Range& range) const;
  bool leads_into(const Judged& one) const;
  bool is_passed_always(const Judged& one) const;
  bool is_just_before(std::uint64_t address, std::uint64_t start) const;
  const char* problem_of(const Judged& one) const;

  Body body_;
  Declared declared_;
  std::vector<Mark> marks_;
  std::vector<Judged> all_;
};

Judge::Judge(const DebugInfo::Handles& handles, std::span<Copy* const> copies)
    : body_(body_of(handles, copies.front()->function)), declared_(declared(copies.front()->die)) {
  all_.reserve(copies.size());
  for (Copy* copy : copies) {
    Judged one{.copy = copy, .ranges = ranges_of(copy->die)};
    one.entry = entry_of(copy->die, one.ranges);
    one.view = static_cast<unsigned>(
        std::min<std::uint64_t>(number_in(copy->die, DW_AT_GNU_entry_view).value_or(0), INT32_MAX));
    all_.push_back(std::move(one));
  }
}

void Judge::find_marks() {
  if (declared_.file.empty() || declared_.line <= 0 || declared_.column <= 0) return;
  for (const BodyRow& row : body_.rows)
    if (row.is_statement && row.line == declared_.line && row.column == declared_.column &&
        last_part(row.source) == declared_.file)
      marks_.emplace_back(row.address, row.view);
}

// A mark that no copy has as its entry belongs to a second piece of code of one of those around it.
void Judge::take_mark(const Mark& mark) {
  const auto entered = std::ranges::find_if(all_, [&](const Judged& one) { return one.is_entry(mark); });
  if (entered != all_.end()) {
    entered->start = mark.first;
    return;
  }
  const auto is_around = [&](const Judged& one) { return holds(one.ranges, mark.first); };
  const bool is_known = std::ranges::any_of(all_, is_around);
  for (Judged& one : all_)
    if (!is_known || is_around(one)) one.problem = kDuplicated;
}

// Whether control comes into the range at its first instruction alone, and passes no part of it twice.
bool Judge::is_entered_at(const elf::Range& range) const {
  if (!body_.computed.empty()) return false;
  return std::ranges::all_of(body_.jumps, [&](const Jump& jump) {
    if (!range.holds(jump.to)) return true;
    return range.holds(jump.from) ? jump.to > jump.from : jump.to == range.begin;
  });
}

// A part of the source that comes again after another one was duplicated, or seems so; and a single one would not show it.
bool Judge::has_one_pass_of_rows(const elf::Range& range) const {
  const auto has_place = [&](const BodyRow& row) { return range.holds(row.address) && row.line != 0; };
  const auto first = std::ranges::find_if(body_.rows, has_place);
  if (first == body_.rows.end() || first->address != range.begin || last_part(first->source) != declared_.file)
    return false;
  bool has_other = false;
  for (auto row = first; row != body_.rows.end(); ++row) {
    if (!has_place(*row)) continue;
    const bool is_same = row->line == first->line && row->column == first->column;
    if (is_same && has_other) return false;
    has_other = has_other || !is_same;
  }
  return has_other && first->line >= declared_.line;
}

// Where there is no mark.
void Judge::take_code(Judged& one) const {
  if (one.start || one.ranges.size() != 1) return;
  const elf::Range& range = one.ranges.front();
  if (one.entry.value_or(range.begin) != range.begin) return;
  if (is_entered_at(range) && has_one_pass_of_rows(range)) one.start = range.begin;
}

// Whether the copy's code follows, perhaps after some of its caller's that control neither leaves nor enters in between.
bool Judge::leads_into(const Judged& one) const {
  const auto around = std::ranges::find_if(body_.ranges, [&](const auto& range) { return range.holds(*one.start); });
  if (around == body_.ranges.end()) return false;
  std::uint64_t next = around->end;
  for (const elf::Range& range : one.ranges)
    if (range.end > *one.start) next = std::min(next, std::max(range.begin, *one.start));
  const auto is_between = [&](std::uint64_t address) { return *one.start <= address && address < next; };
  const auto breaks = [&](const Jump& jump) {
    return is_between(jump.from) || (jump.to > *one.start && jump.to <= next);
  };
  if (next == *one.start) return true;
  return next < around->end && std::ranges::none_of(body_.jumps, breaks) &&
         std::ranges::none_of(body_.computed, is_between);
}

// Whether control comes to no other part of the copy by a way around its start: a call whose mark was lost. Computations that were
// moved up to where control still comes to the start are no such part, nor is anything just before it.
bool Judge::is_passed_always(const Judged& one) const {
  constexpr int kMostMoved = 64;
  if (!body_.computed.empty()) return false;
  const std::vector<bool> reached = reached_without(body_, *one.start);
  int moved = 0;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const BodyInsn& insn = body_.insns[i];
    if (!reached[i] || !holds(one.ranges, insn.address) || is_just_before(insn.address, *one.start)) continue;
    if (!insn.just_computes || ++moved > kMostMoved || !leads_to(body_, i, *one.start)) return false;
  }
  return true;
}

// Whether control goes from one address to the other and nowhere else, and comes to the latter from there alone.
bool Judge::is_just_before(std::uint64_t address, std::uint64_t start) const {
  if (address >= start || body_.insns.empty()) return false;
  const auto is_between = [&](const BodyInsn& insn) { return insn.address >= address && insn.address < start; };
  const auto goes_on = [&](const BodyInsn& insn) { return insn.falls_through && insn.target == 0; };
  const auto around = std::ranges::find_if(body_.ranges, [&](const auto& range) { return range.holds(address); });
  if (around == body_.ranges.end() || !around->holds(start)) return false;
  const auto enters = [&](const Jump& jump) { return jump.to > address && jump.to <= start; };
  return std::ranges::none_of(body_.jumps, enters) &&
         std::ranges::all_of(body_.insns, [&](const BodyInsn& insn) { return !is_between(insn) || goes_on(insn); });
}

const char* Judge::problem_of(const Judged& one) const {
  const auto is_inside = [&](std::uint64_t address) { return holds(one.ranges, address); };
  if (one.problem != nullptr) return one.problem;
  if (one.copy->is_in_itself) return kPart;
  if (!body_.is_known || one.start.value_or(0) == 0 || !leads_into(one)) return kUnknown;
  if (!is_passed_always(one)) return kWaysAround;
  if (std::ranges::any_of(body_.packed, is_inside)) return kPacked;
  const auto is_back = [&](const Jump& jump) { return jump.to == *one.start && is_inside(jump.from); };
  if (std::ranges::any_of(body_.jumps, is_back)) return kLoop;
  return std::ranges::count(all_, one.start, &Judged::start) > 1 ? kShared : nullptr;
}

void Judge::judge() {
  find_marks();
  for (const Mark& mark : marks_) take_mark(mark);
  for (Judged& one : all_) take_code(one);
  for (const Judged& one : all_) {
    const char* problem = problem_of(one);
    one.copy->found.problem = problem == nullptr ? "" : problem;
    one.copy->found.address = problem == nullptr ? *one.start : 0;
  }
}

}  // namespace

void find_starts(const DebugInfo::Handles& handles, std::span<Copy* const> copies) { Judge(handles, copies).judge(); }

}  // namespace uprobe::dwarf
