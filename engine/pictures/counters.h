// SPDX-License-Identifier: MIT
// The numeric fields that are shown as curves: --counter=EVENT:FIELD.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/output/formatter.h"
#include "engine/output/values.h"

namespace uprobe::format {

// "[GROUP/]EVENT:FIELD"
Result<Counter> parse_counter(std::string_view text);
// Those that can be read.
std::vector<Counter> parse_counters(const std::vector<std::string>& texts);
// Fails for a counter that is no numeric field of an event.
Status check_counters(const std::vector<std::string>& texts, std::span<const program::EventLayout> layouts);

// The counters of one event.
struct CountedField {
  std::size_t counter = 0;  // its place in the list
  std::size_t field = 0;    // in KnownEvent::fields()
};
std::vector<CountedField> counted_fields(const std::vector<Counter>& counters, const KnownEvent& event);

}  // namespace uprobe::format
