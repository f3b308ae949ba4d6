// SPDX-License-Identifier: MIT
// Source lines and their code.
#include <algorithm>
#include <map>
#include <set>

#include "engine/dwarf/handles.h"

namespace uprobe::dwarf {
namespace {

// A row of a line table at which a debugger may stop.
struct Row {
  std::uint64_t address;
  int line;
  const char* source;
};

bool is_called(Dwarf_Die function, const std::string& name) {
  const char* own = dwarf_diename(&function);
  return own != nullptr && name == own;
}

template <class Visit>
void each_row(Dwarf_Die unit, const Visit& visit) {
  Dwarf_Lines* lines = nullptr;
  std::size_t count = 0;
  if (dwarf_getsrclines(&unit, &lines, &count) != 0) return;
  for (std::size_t i = 0; i < count; ++i) {
    Dwarf_Line* line = dwarf_onesrcline(lines, i);
    Dwarf_Addr address = 0;
    bool is_statement = false, is_end = false;
    int number = 0;
    if (dwarf_linebeginstatement(line, &is_statement) != 0 || !is_statement) continue;
    if (dwarf_lineendsequence(line, &is_end) != 0 || is_end) continue;
    if (dwarf_lineno(line, &number) != 0 || dwarf_lineaddr(line, &address) != 0) continue;
    const char* source = dwarf_linesrc(line, nullptr, nullptr);
    if (source != nullptr) visit(Row{address, number, source});
  }
}

template <class Visit>
void each_unit(Dwarf* debug, const Visit& visit) {
  Dwarf_Off at = 0, next = 0;
  std::size_t header = 0;
  for (; dwarf_nextcu(debug, at, &next, &header, nullptr, nullptr, nullptr) == 0; at = next) {
    Dwarf_Die unit;
    if (dwarf_offdie(debug, at + header, &unit) != nullptr) visit(unit);
  }
}

// The function, or copy of an inlined one, around an address.
std::optional<Dwarf_Die> instance_at(const DebugInfo::Handles& handles, std::uint64_t address) {
  for (Dwarf_Die& scope : scopes_at(handles, address)) {
    const int tag = dwarf_tag(&scope);
    if (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine) return scope;
  }
  return {};
}

bool is_same(Dwarf_Die a, Dwarf_Die b) { return dwarf_dieoffset(&a) == dwarf_dieoffset(&b); }

// The unit of the first instruction of a DIE with code.
std::optional<Dwarf_Die> unit_of_code(const DebugInfo::Handles& handles, Dwarf_Die die) {
  Dwarf_Addr base = 0, begin = 0, end = 0;
  return dwarf_ranges(&die, 0, &base, &begin, &end) > 0 ? unit_at(handles, begin) : std::nullopt;
}

// `after`: the next line with code, 0: none; -1: the source has no code at all.
Error no_such_line(const std::string& file, int line, int after) {
  if (after < 0) return Error{.code = Code::not_found, .text = "no source '" + file + "' in the debug information"};
  Error error{.code = Code::not_found, .text = "no code at " + file + ":" + std::to_string(line)};
  error.help = after > 0 ? "the next line with code is " + std::to_string(after)
                         : "it is after the last line with code; --lines=FUNC lists those of a function";
  return error;
}

}  // namespace

bool ends_with_path(std::string_view path, std::string_view end) {
  if (!path.ends_with(end)) return false;
  return path.size() == end.size() || path[path.size() - end.size() - 1] == '/';
}

Result<CodeLine> DebugInfo::declaration_of(const std::string& function) const {
  struct Wanted {
    const std::string& name;
    std::set<std::pair<std::string, int>> found = {};
  } wanted{function};
  const auto look = [](Dwarf_Die* die, void* argument) -> int {
    Wanted& all = *static_cast<Wanted*>(argument);
    const char *name = dwarf_diename(die), *file = declaring_source(*die);
    int line = 0;
    if (name != nullptr && file != nullptr && all.name == name && dwarf_decl_line(die, &line) == 0)
      all.found.emplace(file, line);
    return DWARF_CB_OK;
  };
  each_unit(handles_->debug, [&](Dwarf_Die& unit) {
    Dwarf_Die whole = whole_unit(*handles_, unit);
    dwarf_getfuncs(&whole, look, &wanted, 0);
  });
  const auto& found = wanted.found;
  if (found.empty())
    return Error{.code = Code::not_found, .text = "no function '" + function + "' in the debug information"};
  if (found.size() > 1)
    return Error{.text = "'" + function + "' is ambiguous",
                 .help = "candidates: " + found.begin()->first + ", " + std::next(found.begin())->first};
  return CodeLine{found.begin()->first, found.begin()->second};
}

Result<std::vector<std::uint64_t>> DebugInfo::find_line(const std::string& file, int line,
                                                        const std::string& function) const {
  Dwarf* debug = handles_->debug;
  std::set<std::string> sources;
  std::map<Dwarf_Off, std::uint64_t> first;  // by function
  int after = -1;
  each_unit(debug, [&](Dwarf_Die& unit) {
    each_row(unit, [&](const Row& row) {
      if (!ends_with_path(row.source, file) || !handles_->file->offset_of_address(row.address)) return;
      after = std::max(after, 0);
      if (row.line > line && (after == 0 || row.line < after)) after = row.line;
      if (row.line != line) return;
      auto instance = instance_at(*handles_, row.address);
      if (instance && !function.empty() && !is_called(*instance, function)) return;
      sources.insert(row.source);
      if (!instance) return;
      const auto [known, is_new] = first.try_emplace(dwarf_dieoffset(&*instance), row.address);
      known->second = std::min(known->second, row.address);
    });
  });
  if (first.empty()) return no_such_line(file, line, after);
  if (sources.size() > 1)
    return Error{.text = "'" + file + "' is ambiguous",
                 .help = "candidates: " + *sources.begin() + ", " + *std::next(sources.begin())};
  std::vector<std::uint64_t> addresses;
  addresses.reserve(first.size());
  for (const auto& [instance, address] : first) addresses.push_back(after_prologue(address));
  std::sort(addresses.begin(), addresses.end());
  return addresses;
}

std::uint64_t DebugInfo::after_prologue(std::uint64_t address) const {
  const Scopes scopes = scopes_at(*handles_, address);
  auto function = function_of(scopes);
  Dwarf_Addr low = 0;
  if (!function || !has_prologue(*function)) return address;
  if (dwarf_lowpc(&*function, &low) != 0 || low != address) return address;
  return end_of_prologue(*handles_, *function);
}

std::vector<CodeLine> DebugInfo::lines_of(std::uint64_t address) const {
  const auto unit = unit_at(*handles_, address);
  const auto function = function_of(scopes_at(*handles_, address));
  std::vector<CodeLine> lines;
  if (!unit || !function) return lines;
  Dwarf_Die copy = *function;
  const char* own = declaring_source(copy);
  std::set<std::pair<std::string, int>> seen;
  each_row(*unit, [&](const Row& row) {
    if (dwarf_haspc(&copy, row.address) <= 0 || (own != nullptr && std::string_view(own) != row.source)) return;
    if (const auto in = instance_at(*handles_, row.address)) {
      Dwarf_Die die = *in;
      if (dwarf_dieoffset(&die) == dwarf_dieoffset(&copy)) seen.emplace(row.source, row.line);
    }
  });
  for (const auto& [file, line] : seen) lines.push_back({file, line});
  return lines;
}

std::vector<CodeLine> DebugInfo::lines_of_copies() const {
  std::set<std::pair<std::string, int>> seen;
  for (const Handles::Copy& copy : handles_->copies) {
    Dwarf_Die die = copy.die;
    const auto unit = unit_of_code(*handles_, die);
    const char* own = declaring_source(die);
    if (!unit || own == nullptr) continue;
    each_row(*unit, [&](const Row& row) {
      if (dwarf_haspc(&die, row.address) <= 0 || std::string_view(own) != row.source) return;
      const auto in = instance_at(*handles_, row.address);
      if (in && is_same(*in, die)) seen.emplace(row.source, row.line);
    });
  }
  std::vector<CodeLine> lines;
  lines.reserve(seen.size());
  for (const auto& [file, line] : seen) lines.push_back({file, line});
  return lines;
}

}  // namespace uprobe::dwarf
