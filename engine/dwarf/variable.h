// SPDX-License-Identifier: MIT
// A variable on its way from its name to a fetch. Internal to this folder.
#pragma once

#include <string_view>

#include "engine/dwarf/handles.h"

namespace uprobe::dwarf {

// Where a value is, as the steps of a fetch: what lies `offset` behind the value after the last step, or that value itself without
// its first `offset` bytes. In pieces: what is at `offset` of all of them one behind the other.
struct Location {
  struct Piece;
  std::vector<spec::Step> steps;
  bool in_memory = false;
  std::uint64_t offset = 0;
  std::vector<Piece> pieces;
};
struct Location::Piece {
  std::uint64_t bytes = 0;
  Location location;
  std::string problem;  // why it has none
};

// Makes of a location that of its first `bytes` bytes as a fetch has it: one piece, a value from its lowest bit on.
Status settle(Location& location, std::uint64_t bytes);

// Of a variable (a DIE of this file) at an address. The error says why it has none.
Result<Location> location_of(const DebugInfo::Handles& handles, Dwarf_Die variable, const Scopes& scopes,
                             std::uint64_t address);

// A type without its other names and qualifiers.
struct Type {
  Dwarf_Die die;
  int tag = 0;  // 0: void
};
Type type_of(Dwarf_Die variable);
std::uint64_t size_of(Type type);       // 0: not known
std::uint64_t elements_of(Type array);  // 0: not known
std::string name_of(Dwarf_Die typed);   // the type of a variable or member as C writes it, near enough

// What the type makes of the argument: its kind, size and number of elements. `location` is the variable's and becomes that
// of what is fetched (a string is where its pointer leads).
Status set_type(Type type, Location& location, spec::Argument& argument);

}  // namespace uprobe::dwarf
