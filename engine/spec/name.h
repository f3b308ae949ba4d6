// SPDX-License-Identifier: MIT
// The event's name: "p:GROUP/EVENT", "p:EVENT", "p:GROUP/", or none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "engine/lex/words.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::spec {

inline constexpr std::size_t kMaxEventName = 63;  // of groups too
inline constexpr const char* kDefaultGroup = "uprobes";

struct EventName {
  std::string group = kDefaultGroup;
  std::string event;  // empty: automatic
};

// Reads the name in the command's first word. If not strict, the name after "p:" may be empty, and an event called "*" has the
// name of its symbol.
Result<EventName> parse_event_name(const Command& command, bool strict);

inline constexpr std::string_view kNameOfSymbol = "*";

// "<symbol>[_0x<distance>]" as the name of an event.
std::string symbol_event_name(const Place& place);

// A function's name as the name of an event: of "(anonymous namespace)::Cart<int>::add" it is "Cart_add".
std::string function_event_name(std::string_view function);

// The name of a bare place's event: its function, and the distance; SOURCE_LINE; BASE_0xOFFSET.
std::string bare_event_name(const Place& place, std::string_view function);

// The name of an event without one: "p_<base>_0x<offset>" as the kernel makes it (not checked against the rules for names),
// "p_<base>_<symbol>[_0x<distance>]" for a symbol. If no object is named, as the kernel does for kprobes:
// "p_<symbol>_<distance>" or "p_0x<address>", with an r for return probes. The end of a name longer than kMaxEventName becomes
// a digest of the whole.
std::string automatic_name(const Place& place, bool is_return);

}  // namespace uprobe::spec
