// SPDX-License-Identifier: MIT
// A variable on its way from its name to a fetch. Internal to this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/dwarf/handles.h"

namespace uprobe::dwarf {

// The place of a value, as the steps of a fetch: memory at `offset` from the value after the last step, or that value itself
// without its first `offset` bytes. With pieces: at `offset` of all pieces one after the other.
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
  std::string problem;  // why there is no location
};

// Reduces a location to its first `bytes` bytes as a fetch reads them: one piece, a value from its lowest bit on.
Status settle(Location& location, std::uint64_t bytes);

// The location of a variable (a DIE of this file) at an address. The error says why it has none.
Result<Location> location_of(const DebugInfo::Handles& handles, Dwarf_Die variable, const Scopes& scopes,
                             std::uint64_t address);

// The place in each thread of the byte `data` of the file's thread-local data.
Result<Location> place_of_thread(const elf::ElfFile& file, std::uint64_t data);

// A result of a Go function, at its exits: by its name, "r0" where it has none. The error says what there is.
struct GoResult {
  Dwarf_Die die{};
  Location location;
};
Result<GoResult> find_go_result(const Scopes& scopes, std::string_view name);

// How many namespaces and classes around a function (the innermost of `scopes`) have the variable, which is in this one of the scopes;
// nothing: its short name is not seen from there.
std::optional<std::size_t> depth_seen_from(Dwarf_Die variable, Dwarf_Die scope, const Scopes& scopes);

// A type without typedefs and qualifiers.
struct Type {
  Dwarf_Die die;
  int tag = 0;  // 0: void
};
Type type_of(Dwarf_Die variable);
std::uint64_t size_of(Type type);         // 0: not known
bool is_wide_number(Type type);           // __int128, and those of other languages: a number of 16 bytes
std::uint64_t elements_of(Type array);    // 0: not known
bool has_several_dimensions(Type array);  // in one: its elements are not arrays by their type
// Of C++: no part of the objects, but a variable (before DWARF 5 it looks like a part).
bool is_static_member(Dwarf_Die member);
std::string members_of(Type aggregate);  // their names, "a, b"; empty: it has none
std::string name_of(Dwarf_Die typed);    // the type of a variable or member as C writes it, near enough

// The distance of a part in an aggregate; none: it is computed, as for a virtual base.
std::optional<Dwarf_Word> distance_of(Dwarf_Die part);

// A bitfield's lowest bit, counted from the member's place. Before DWARF 4, and from clang for gdb, bits count from the highest bit of a
// container of the member's own.
std::optional<Dwarf_Word> first_bit(Dwarf_Die member, Dwarf_Word width, std::uint64_t bytes);

// reflect.Kind of a type of Go, named or not; 0: it is of another language.
inline constexpr std::uint64_t kGoSlice = 23, kGoString = 24;
std::uint64_t go_kind_of(Type type);
// An interface of Go: one with methods (an error) begins with the address of a table that the compiler has named, `any` with that of a
// description that has no symbol.
bool has_named_table(Type type);
bool is_any_of_go(Type type);
std::optional<Type> element_of_slice(Type slice);

// Where a text has its characters and their number, each in eight bytes: Go's string, Rust's &str and String, C++'s std::string and
// std::string_view. Nothing: it is none, or made otherwise.
struct TextParts {
  std::uint64_t pointer = 0, length = 0;
};
std::optional<TextParts> parts_of_text(Type aggregate);

// A base class whose place each object says itself: the word that the object's table has `before` its beginning is the distance from
// the table's pointer, which is at `table` in the object.
struct VirtualBase {
  Type type;
  std::uint64_t table = 0, before = 0;
};
// The direct ones, and those of the base classes that have a fixed place.
std::vector<VirtualBase> virtual_bases_of(Type aggregate);

// Sets kind, size and number of elements of the argument by the type. `location` is the variable's and becomes that of the
// fetched data (a string is at its pointer's target).
Status set_type(Type type, Location& location, spec::Argument& argument);

}  // namespace uprobe::dwarf
