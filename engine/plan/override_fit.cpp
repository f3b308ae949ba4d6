// SPDX-License-Identifier: MIT
#include "engine/plan/override_fit.h"

namespace uprobe::plan {
bool begins_function(const elf::ElfFile& file, std::uint64_t address) {
  const auto range = file.range_at(address);
  if (range && range->begin == address) return true;
  const auto symbols = file.functions_from(address);
  return !symbols.empty() && symbols.front().address == address;
}

std::string reason_against_override(const FileFlow& flow, const Site& site) {
  if (flow.is_go()) return "is code of Go, whose functions return in ways of their own";
  if (site.is_ifunc) return {};  // what it chooses is a function
  if (!begins_function(*site.file, site.address)) return "is not the first instruction of a function";
  if (site.address == site.file->entry()) return "is where the program begins: it has no caller";
  if (site.symbol.find(".cold") != std::string::npos) return "is a part of another function: no code calls it";
  const SweptFunction* function = flow.swept_at(site.address);
  const bool is_framed = function != nullptr && function->trouble != FlowTrouble::no_unwind;
  if (is_framed && (function->range.begin != site.address || !function->begins_at_call))
    return "is entered by no call, as its unwind information says";
  return {};
}

}  // namespace uprobe::plan
