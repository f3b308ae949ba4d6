// SPDX-License-Identifier: MIT
// Which variables of a file are seen from a function by their short name. Compilers put the definitions of variables of namespaces and
// classes beside all others; where they belong says the declaration, to which the definition refers.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/dwarf/variable.h"

namespace uprobe::dwarf {
namespace {

// What the entry is an instance or the definition of.
Dwarf_Die declaration_of(Dwarf_Die die) {
  constexpr int kMostSteps = 4;
  for (int step = 0; step < kMostSteps; ++step) {
    Dwarf_Attribute attribute;
    Dwarf_Die next;
    const bool refers = dwarf_attr(&die, DW_AT_abstract_origin, &attribute) != nullptr ||
                        dwarf_attr(&die, DW_AT_specification, &attribute) != nullptr;
    if (!refers || dwarf_formref_die(&attribute, &next) == nullptr) break;
    die = next;
  }
  return die;
}

// The namespaces and classes around it, the outermost first. Those without a name count as none.
std::vector<std::string> names_around(Dwarf_Die die) {
  std::vector<std::string> names;
  Dwarf_Die declaration = declaration_of(die);
  Dwarf_Die* found = nullptr;
  const int count = dwarf_getscopes_die(&declaration, &found);
  for (int i = 1; i < count; ++i) {
    const int tag = dwarf_tag(&found[i]);
    const char* const name = dwarf_diename(&found[i]);
    const bool is_scope =
        tag == DW_TAG_namespace || tag == DW_TAG_structure_type || tag == DW_TAG_class_type || tag == DW_TAG_union_type;
    if (is_scope && name != nullptr) names.insert(names.begin(), name);
  }
  std::free(found);
  return names;
}

}  // namespace

std::optional<std::size_t> depth_seen_from(Dwarf_Die variable, Dwarf_Die scope, const Scopes& scopes) {
  if (dwarf_tag(&scope) != DW_TAG_compile_unit) return 0;
  const std::vector<std::string> names = names_around(variable);
  if (names.empty()) return 0;
  const auto is_function = [](Dwarf_Die die) {
    return dwarf_tag(&die) == DW_TAG_subprogram || dwarf_tag(&die) == DW_TAG_inlined_subroutine;
  };
  const auto function = std::ranges::find_if(scopes, is_function);
  if (function == scopes.end()) return std::nullopt;
  const std::vector<std::string> here = names_around(*function);
  const bool is_around = names.size() <= here.size() && std::equal(names.begin(), names.end(), here.begin());
  return is_around ? std::optional(names.size()) : std::nullopt;
}

}  // namespace uprobe::dwarf
