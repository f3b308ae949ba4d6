// SPDX-License-Identifier: MIT
#include "engine/program/layout.h"

namespace uprobe::program {

std::string fields_help(const EventLayout& layout) {
  constexpr std::string_view kOfAll = "comm, common_pid and cpu are of all events";
  std::string names;
  for (const Field& field : layout.fields) names += (names.empty() ? "there are: " : ", ") + field.name;
  if (names.empty()) names = "the event records no values: give those that are needed with its place, e.g. size=$arg1";
  return names + "; " + std::string(kOfAll);
}

}  // namespace uprobe::program
