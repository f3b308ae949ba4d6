// SPDX-License-Identifier: MIT
// The metadata of a CTF trace, in TSDL. Identifiers begin with an underline, which readers take away, so that no name is a keyword;
// other names are strings in which each byte that is no letter is escaped.
//
// A record that lacks the values of its function's entry is an event of another number and the same name without these fields.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/output/values.h"
#include "engine/program/layout.h"

namespace uprobe::format {

inline constexpr std::uint32_t kCtfMagic = 0xc1fc1fc1;
// Numbers of the tool's own events: 'uprobe_run:lost' { string event; u64 hits, returns }, 'uprobe_run:user_stack' { u32; that many
// strings }.
inline constexpr std::uint32_t kCtfLost = 0x20000, kCtfStack = 0x20001;

struct CtfEvent : KnownEvent {
  using KnownEvent::KnownEvent;
  bool has_entry_fields() const;
  // Whether the field is in records without the values of the entry.
  static bool is_in(const program::Field& field, bool lacks_entry) { return !lacks_entry || !field.of_entry; }
};

inline std::uint32_t ctf_number(std::uint32_t type, bool lacks_entry) { return 2 * type + (lacks_entry ? 1 : 0); }

// Everything but the program's events; `clock`: its name. `marks_changes`: each event has a byte more in its context, `changed`.
std::string ctf_preamble(std::string_view clock, bool marks_changes);
std::string ctf_description(const CtfEvent& event, std::uint32_t type);

}  // namespace uprobe::format
