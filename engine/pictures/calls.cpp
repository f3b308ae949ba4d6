// SPDX-License-Identifier: MIT
#include "engine/pictures/calls.h"

#include <algorithm>
#include <array>

#include "engine/names/demangle.h"

namespace uprobe::format {

namespace {

bool is_exec(std::string_view function) {
  constexpr std::array<std::string_view, 4> kNames = {"execve", "execveat", "fexecve", "__execve"};
  return std::find(kNames.begin(), kNames.end(), function) != kNames.end();
}

}  // namespace

std::string shown_name(const program::EventLayout& layout) {
  const bool has_function = !layout.function.empty() && !layout.place.empty();
  return has_function && layout.style != program::Style::kprobes_2009 ? elf::plain_name(layout.place) : layout.event;
}

std::optional<std::uint64_t> recorded_latency(const KnownEvent& event, Values& values) {
  for (const program::Field& field : event.fields())
    if (field.of_entry && field.name == "latency" && field.count == 0)
      if (const Value value = values.at(field); value.kind == Value::Kind::unsigned_decimal) return value.number;
  return std::nullopt;
}

void CallEvents::add(const program::EventLayout& layout) {
  Event event{.function = 0, .is_exec = is_exec(layout.place)};
  if (!layout.function.empty()) {
    const auto [found, is_new] = numbers_.try_emplace(layout.function, static_cast<std::uint32_t>(functions_.size()));
    if (is_new) functions_.emplace_back();
    event.function = found->second;
    Function& function = functions_[event.function];
    std::uint16_t& mine = layout.is_return ? function.exit : function.entry;
    if (mine == kNone) mine = static_cast<std::uint16_t>(events_.size());
  }
  events_.push_back(event);
}

CallEvents::Role CallEvents::role(std::uint16_t type) const {
  const Function& function = functions_[events_[type].function];
  if (function.entry == kNone || function.exit == kNone) return Role::hit;
  if (type == function.entry) return Role::entry;
  return type == function.exit ? Role::exit : Role::hit;
}

}  // namespace uprobe::format
