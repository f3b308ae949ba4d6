// SPDX-License-Identifier: MIT
// What there is to know of the events of a running session: for `--control --info`, and for the library, which gets it from its
// self-attach tracer as a text of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/types.h"

namespace uprobe {

struct EventInfo {
  std::string name;  // "GROUP/EVENT"
  int owner = 0;     // process id of the client tool that owns it; 0: the session itself
  bool on = false;   // at one of its places, or more
  std::uint32_t places = 0;
  std::uint64_t hits = 0, lost = 0, missed = 0;  // since the last reset
  std::string print_format;                      // of a mark

  bool operator==(const EventInfo&) const = default;
};

// The probes of one event follow each other.
std::vector<EventInfo> events_of(const std::vector<ProbeState>& probes);

std::string encode(const std::vector<EventInfo>& events);
// Nothing where the bytes are malformed.
std::optional<std::vector<EventInfo>> decode_events(std::string_view bytes);

}  // namespace uprobe
