// SPDX-License-Identifier: MIT
// Inlined copies of functions, by the functions' names.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/dwarf/copy_starts.h"
#include "engine/elf/name_index.h"

namespace uprobe::dwarf {
namespace {

using Copy = DebugInfo::Handles::Copy;

constexpr std::size_t kMostEntries = 64 << 20;  // of debug information that are looked at
constexpr int kDeepestBlock = 256;

// What else than functions and copies may have copies in it: types have methods, and blocks have calls.
bool may_hold_copies(int tag) {
  switch (tag) {
    case DW_TAG_lexical_block:
    case DW_TAG_try_block:
    case DW_TAG_catch_block:
    case DW_TAG_namespace:
    case DW_TAG_module:
    case DW_TAG_structure_type:
    case DW_TAG_class_type:
    case DW_TAG_union_type:
      return true;
    default:
      return false;
  }
}

// What a DIE was made from: the function itself, of an inlined copy and of a function with code of its own.
Dwarf_Die origin_of(Dwarf_Die die) {
  constexpr int kMostLinks = 8;
  Dwarf_Attribute attribute;
  Dwarf_Die next;
  for (int i = 0; i < kMostLinks; ++i) {
    if (dwarf_attr(&die, DW_AT_abstract_origin, &attribute) == nullptr) break;
    if (dwarf_formref_die(&attribute, &next) == nullptr) break;
    die = next;
  }
  return die;
}

const char* linkage_name_of(Dwarf_Die die) {
  Dwarf_Attribute attribute;
  for (const unsigned name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name})
    if (dwarf_attr_integrate(&die, name, &attribute) != nullptr) return dwarf_formstring(&attribute);
  return nullptr;
}

// The name as the file's symbols would have it.
std::string symbol_name_of(Dwarf_Die die) {
  const char *linked = linkage_name_of(die), *plain = dwarf_diename(&die);
  return linked != nullptr ? linked : plain != nullptr ? plain : "";
}

// All functions whose names could be the wanted one, by a part of it: a mangled name and a spoken one both have it.
class Finder {
 public:
  Finder(std::string_view wanted, std::vector<Copy>& found) : wanted_(wanted), found_(found) {}

  // False: it gave up.
  bool look(Dwarf_Die unit) {
    look_in(unit, {}, 0);
    return !is_over();
  }
  bool has_too_many() const { return found_.size() > kMostCopies; }

 private:
  bool is_over() const { return entries_ > kMostEntries || has_too_many(); }
  void look_in(Dwarf_Die parent, const Dwarf_Die& function, int depth);
  void take(Dwarf_Die copy, const Dwarf_Die& function);
  void take_clone(Dwarf_Die function);
  bool is_candidate(Dwarf_Die copy);

  std::string_view wanted_;
  std::vector<Copy>& found_;
  std::map<const void*, bool> candidates_;  // by origin
  std::vector<const void*> around_;         // the origins of the functions around, from the one with code of its own on
  std::size_t entries_ = 0;
};

bool Finder::is_candidate(Dwarf_Die copy) {
  Dwarf_Die origin = origin_of(copy);
  const auto [known, is_new] = candidates_.try_emplace(origin.addr, false);
  if (!is_new) return known->second;
  const char* name = dwarf_diename(&origin);
  std::string_view text = name == nullptr ? "" : name;
  text = text.substr(0, text.find('<'));
  return known->second = !text.empty() && wanted_.find(text) != std::string_view::npos;
}

// `function`: the innermost one around with code of its own.
void Finder::look_in(Dwarf_Die parent, const Dwarf_Die& function, int depth) {
  if (depth == kDeepestBlock) return;
  each_child(parent, [&](Dwarf_Die& child) {
    if (is_over()) return;
    ++entries_;
    const int tag = dwarf_tag(&child);
    if (tag == DW_TAG_subprogram) {
      if (dwarf_hasattr(&child, DW_AT_abstract_origin) != 0) take_clone(child);
      auto outer = std::exchange(around_, {origin_of(child).addr});
      look_in(child, child, depth + 1);
      around_ = std::move(outer);
    } else if (tag == DW_TAG_inlined_subroutine) {
      take(child, function);
      around_.push_back(origin_of(child).addr);
      look_in(child, function, depth + 1);
      around_.pop_back();
    } else if (may_hold_copies(tag)) {
      look_in(child, function, depth + 1);
    }
  });
}

void Finder::take(Dwarf_Die copy, const Dwarf_Die& function) {
  if (function.addr == nullptr || !is_candidate(copy)) return;
  const bool is_in_itself = std::ranges::find(around_, origin_of(copy).addr) != around_.end();
  found_.push_back({.die = copy, .function = function, .is_in_itself = is_in_itself, .found = {}});
}

// A function with code of its own, perhaps under another symbol.
void Finder::take_clone(Dwarf_Die function) {
  Dwarf_Addr entry = 0;
  if (dwarf_lowpc(&function, &entry) != 0 || entry == 0 || !is_candidate(function)) return;
  found_.push_back({.die = function, .function = function, .found = {.address = entry, .is_clone = true}});
}

// What is no clone: the function itself, and parts of it that gcc has split off ("f.part.0"), which are called in the midst of a call.
bool is_no_clone(const elf::ElfFile& file, std::uint64_t address, const std::vector<elf::Symbol>& functions) {
  if (std::ranges::find(functions, address, &elf::Symbol::address) != functions.end()) return true;
  const auto symbols = file.functions_from(address);
  const auto is_here = [&](const elf::Symbol& symbol) { return symbol.address == address; };
  const auto end = std::ranges::find_if_not(symbols, is_here);
  const auto is_part = [](const elf::Symbol& symbol) { return symbol.name.find(".part.") != std::string::npos; };
  return end == symbols.begin() || std::any_of(symbols.begin(), end, is_part);
}

// The functions whose names are the wanted one in the words of ElfFile::find_functions().
std::set<std::string> names_among(const std::vector<Copy>& copies, std::string_view wanted) {
  std::set<std::string> all, chosen;
  for (const Copy& copy : copies) all.insert(symbol_name_of(copy.die));
  std::vector<elf::Symbol> symbols;
  symbols.reserve(all.size());
  for (const std::string& name : all) symbols.push_back({.name = name});
  const elf::NameIndex index(symbols);
  for (const std::uint32_t i : index.find(elf::WantedName::parse(wanted).name)) chosen.insert(symbols[i].name);
  return chosen;
}

// Copies are judged together where their marks in the line table would look alike.
void find_all_starts(const DebugInfo::Handles& handles, std::vector<Copy>& copies, const std::set<std::string>& names) {
  using Key = std::tuple<const void*, std::string, int, int>;
  std::map<Key, std::vector<Copy*>> groups;
  for (Copy& copy : copies) {
    if (copy.found.is_clone) continue;
    Dwarf_Attribute attribute;
    Dwarf_Word column = 0;
    int line = 0;
    const char* source = declaring_source(copy.die);
    dwarf_decl_line(&copy.die, &line);
    dwarf_formudata(dwarf_attr_integrate(&copy.die, DW_AT_decl_column, &attribute), &column);
    groups[Key(copy.function.addr, source == nullptr ? "" : source, line, static_cast<int>(column & INT32_MAX))]
        .push_back(&copy);
  }
  const auto is_wanted = [&](const Copy* copy) { return names.contains(symbol_name_of(copy->die)); };
  for (const auto& [key, group] : groups)
    if (std::ranges::any_of(group, is_wanted)) find_starts(handles, group);
}

}  // namespace

Result<std::vector<InlinedCopy>> DebugInfo::copies_of(const std::string& function) const {
  std::vector<Copy>& copies = handles_->copies;
  copies.clear();
  Finder finder(function, copies);
  bool is_done = true;
  Dwarf_Off at = 0, next = 0;
  std::size_t header = 0;
  for (; is_done && dwarf_nextcu(handles_->debug, at, &next, &header, nullptr, nullptr, nullptr) == 0; at = next) {
    Dwarf_Die unit;
    if (dwarf_offdie(handles_->debug, at + header, &unit) != nullptr)
      is_done = finder.look(whole_unit(*handles_, unit));
  }
  if (!is_done)
    return Error{.code = Code::refused,
                 .text = finder.has_too_many() ? "they are too many" : "there is too much debug information"};
  const std::set<std::string> names = names_among(copies, function);
  find_all_starts(*handles_, copies, names);
  const std::vector<elf::Symbol> functions = handles_->file->find_functions(function);
  std::erase_if(copies, [&](const Copy& copy) {
    if (!names.contains(symbol_name_of(copy.die))) return true;
    return copy.found.is_clone && is_no_clone(*handles_->file, copy.found.address, functions);
  });
  std::vector<InlinedCopy> found;
  found.reserve(copies.size());
  for (Copy& copy : copies) {
    copy.found.number = static_cast<std::uint32_t>(found.size());
    found.push_back(copy.found);
  }
  return found;
}

}  // namespace uprobe::dwarf
