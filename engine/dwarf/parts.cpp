// SPDX-License-Identifier: MIT
// Parts of aggregates: where they are, and those that compilers and libraries make in their own ways, texts with a length and virtual
// base classes. Names of members are those of the Go runtime, Rust's library, libstdc++ and libc++.
#include <algorithm>
#include <array>
#include <initializer_list>

#include "engine/dwarf/variable.h"

namespace uprobe::dwarf {
namespace {

constexpr std::uint64_t kWord = 8;
constexpr int kDeepestBase = 8;
constexpr unsigned kKindOfGo = 0x2900;  // DW_AT_go_kind

using Path = std::initializer_list<std::string_view>;

struct Part {
  Type type;
  std::uint64_t offset = 0;
};

std::optional<Part> member_of(const Part& whole, std::string_view name) {
  std::optional<Part> found;
  each_child(whole.type.die, [&](Dwarf_Die& die) {
    const char* own = dwarf_tag(&die) == DW_TAG_member ? dwarf_diename(&die) : nullptr;
    const auto distance = number_in(die, DW_AT_data_member_location);
    if (!found && own != nullptr && name == own && distance) found = Part{type_of(die), whole.offset + *distance};
  });
  return found;
}

// The place of a word, member by member.
std::optional<std::uint64_t> word_at(Type whole, const Path& path) {
  std::optional<Part> part = Part{whole, 0};
  for (const std::string_view name : path)
    if (part) part = member_of(*part, name);
  return part && size_of(part->type) == kWord ? std::optional(part->offset) : std::nullopt;
}

std::optional<TextParts> text_of(Type whole, const Path& pointer, const Path& length) {
  const auto characters = word_at(whole, pointer), number = word_at(whole, length);
  if (!characters || !number) return {};
  return TextParts{*characters, *number};
}

std::uint64_t language_of(Dwarf_Die die) {
  Dwarf_Die unit;
  return dwarf_diecu(&die, &unit, nullptr, nullptr) == nullptr ? 0 : number_in(unit, DW_AT_language).value_or(0);
}

// Slices of bytes are texts, too.
std::optional<TextParts> text_of_go(Type whole) {
  const std::uint64_t kind = go_kind_of(whole);
  if (kind == kGoString) return text_of(whole, {"str"}, {"len"});
  const auto element = kind == kGoSlice ? element_of_slice(whole) : std::nullopt;
  if (!element || element->tag != DW_TAG_base_type || size_of(*element) != 1) return {};
  return number_in(element->die, DW_AT_encoding) == std::uint64_t{DW_ATE_unsigned} ? text_of(whole, {"array"}, {"len"})
                                                                                   : std::nullopt;
}

std::optional<TextParts> text_of_rust(Type whole, std::string_view name) {
  if (name == "&str" || name == "&mut str") return text_of(whole, {"data_ptr"}, {"length"});
  if (name != "String") return {};
  for (const Path& pointer : {Path{"vec", "buf", "inner", "ptr", "pointer", "pointer"},
                              Path{"vec", "buf", "ptr", "pointer", "pointer"}, Path{"vec", "buf", "ptr", "pointer"}})
    if (const auto text = text_of(whole, pointer, {"vec", "len"})) return text;
  return {};
}

std::optional<TextParts> text_of_cplusplus(Type whole, std::string_view name) {
  if (name.starts_with("basic_string_view<char,")) {
    if (const auto text = text_of(whole, {"_M_str"}, {"_M_len"})) return text;
    return text_of(whole, {"__data"}, {"__size"});
  }
  return name.starts_with("basic_string<char,") ? text_of(whole, {"_M_dataplus", "_M_p"}, {"_M_string_length"})
                                                : std::nullopt;
}

// "dup; deref; N; minus; deref; plus": the distance is in the word that is N before what the object's first word points to.
std::optional<std::uint64_t> before_table(Dwarf_Die inheritance) {
  Dwarf_Attribute attribute;
  Dwarf_Op* ops = nullptr;
  std::size_t count = 0;
  if (dwarf_attr(&inheritance, DW_AT_data_member_location, &attribute) == nullptr ||
      dwarf_getlocation(&attribute, &ops, &count) != 0 || count != 6)
    return {};
  static constexpr std::array<unsigned, 6> kShape = {DW_OP_dup, DW_OP_deref, 0, DW_OP_minus, DW_OP_deref, DW_OP_plus};
  for (std::size_t i = 0; i < count; ++i)
    if (kShape[i] != 0 && ops[i].atom != kShape[i]) return {};
  if (ops[2].atom >= DW_OP_lit0 && ops[2].atom <= DW_OP_lit31) return ops[2].atom - DW_OP_lit0 + 0ull;
  const bool is_number = ops[2].atom == DW_OP_constu || ops[2].atom == DW_OP_const1u || ops[2].atom == DW_OP_const2u;
  return is_number && ops[2].number < INT32_MAX ? std::optional<std::uint64_t>(ops[2].number) : std::nullopt;
}

void add_virtual_bases(const Part& of, int depth, std::vector<VirtualBase>& bases) {
  each_child(of.type.die, [&](Dwarf_Die& die) {
    if (dwarf_tag(&die) != DW_TAG_inheritance || depth > kDeepestBase) return;
    if (number_in(die, DW_AT_virtuality).value_or(0) != 0) {
      if (const auto before = before_table(die)) bases.push_back({type_of(die), of.offset, *before});
    } else if (const auto distance = number_in(die, DW_AT_data_member_location)) {
      add_virtual_bases({type_of(die), of.offset + *distance}, depth + 1, bases);
    }
  });
}

// A number, or in DWARF 2 an expression that adds one.
bool read_distance(Dwarf_Attribute& attribute, Dwarf_Word& distance) {
  if (dwarf_formudata(&attribute, &distance) == 0) return true;
  Dwarf_Op* expression = nullptr;
  std::size_t length = 0;
  if (dwarf_getlocation(&attribute, &expression, &length) != 0 || length != 1) return false;
  distance = expression[0].number;
  return expression[0].atom == DW_OP_plus_uconst;
}

bool is_struct_of_go(Type type, std::string_view name) {
  if (type.tag != DW_TAG_structure_type || language_of(type.die) != DW_LANG_Go) return false;
  const char* own = dwarf_diename(&type.die);
  return own != nullptr && own == name;
}

}  // namespace

std::optional<Dwarf_Word> distance_of(Dwarf_Die part) {
  Dwarf_Attribute attribute;
  Dwarf_Word offset = 0;
  if (dwarf_attr(&part, DW_AT_virtuality, &attribute) != nullptr && dwarf_tag(&part) == DW_TAG_inheritance) return {};
  if (dwarf_attr(&part, DW_AT_data_member_location, &attribute) != nullptr && !read_distance(attribute, offset))
    return {};
  return offset;
}

bool is_static_member(Dwarf_Die member) {
  return dwarf_hasattr(&member, DW_AT_external) != 0 || dwarf_hasattr(&member, DW_AT_declaration) != 0;
}

std::optional<Dwarf_Word> first_bit(Dwarf_Die member, Dwarf_Word width, std::uint64_t bytes) {
  if (const auto bit = number_in(member, DW_AT_data_bit_offset)) return bit;
  const auto from_above = number_in(member, DW_AT_bit_offset);
  const Dwarf_Word bits = 8 * number_in(member, DW_AT_byte_size).value_or(bytes);
  if (!from_above || *from_above > bits || width > bits - *from_above) return {};
  return bits - *from_above - width;
}

std::uint64_t go_kind_of(Type type) {
  if (type.tag == 0 || language_of(type.die) != DW_LANG_Go) return 0;
  return number_in(type.die, kKindOfGo).value_or(0);
}

bool has_named_table(Type type) { return is_struct_of_go(type, "runtime.iface"); }

bool is_any_of_go(Type type) { return is_struct_of_go(type, "runtime.eface"); }

std::optional<Type> element_of_slice(Type slice) {
  const auto array = member_of({slice, 0}, "array");
  if (!array || array->type.tag != DW_TAG_pointer_type) return {};
  return type_of(array->type.die);
}

std::optional<TextParts> parts_of_text(Type aggregate) {
  const char* name = aggregate.tag == 0 ? nullptr : dwarf_diename(&aggregate.die);
  if (name == nullptr) return {};
  switch (language_of(aggregate.die)) {
    case DW_LANG_Go:
      return text_of_go(aggregate);
    case DW_LANG_Rust:
      return text_of_rust(aggregate, name);
    case DW_LANG_C_plus_plus:
    case DW_LANG_C_plus_plus_03:
    case DW_LANG_C_plus_plus_11:
    case DW_LANG_C_plus_plus_14:
      return text_of_cplusplus(aggregate, name);
    default:
      return {};
  }
}

std::vector<VirtualBase> virtual_bases_of(Type aggregate) {
  std::vector<VirtualBase> bases;
  add_virtual_bases({aggregate, 0}, 0, bases);
  return bases;
}

}  // namespace uprobe::dwarf
