// SPDX-License-Identifier: MIT
// Types of variables as kinds of fields.
#include "engine/spec/type.h"

#include <algorithm>

#include "engine/dwarf/variable.h"
#include "engine/spec/argument.h"
#include "engine/spec/messages.h"

namespace uprobe::dwarf {
namespace {

using spec::Argument;
using spec::Kind;
using spec::Sink;
using spec::StepKind;

std::string die_name(Dwarf_Die die) {
  const char* name = dwarf_diename(&die);
  return name == nullptr ? "" : name;
}

// "char", the type of a text's letters; "signed char" and "unsigned char" are numbers.
bool is_plain_char(Type type) {
  return type.tag == DW_TAG_base_type && size_of(type) == 1 && die_name(type.die) == "char";
}

Error unfit(std::string text, std::string help = {}) {
  return Error{.code = Code::refused, .text = std::move(text), .help = std::move(help)};
}

// Kind and size of one value.
Status set_scalar(Type type, Argument& argument) {
  const std::uint64_t bytes = size_of(type);
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)
    return unfit("is a type of " + std::to_string(bytes) + " bytes, which is no number");
  argument.size = static_cast<std::uint8_t>(bytes);
  if (type.tag != DW_TAG_base_type && type.tag != DW_TAG_enumeration_type) {
    argument.kind = Kind::hex;
    return ok();
  }
  std::uint64_t encoding = number_in(type.die, DW_AT_encoding).value_or(0);
  if (type.tag == DW_TAG_enumeration_type && encoding == 0) {
    const Type under = type_of(type.die);
    encoding =
        under.tag == DW_TAG_base_type ? number_in(under.die, DW_AT_encoding).value_or(0) : DW_ATE_unsigned + 0ull;
  }
  if (encoding == DW_ATE_float && bytes >= 4) {
    argument.kind = Kind::floating;
    return ok();
  }
  const bool is_signed = encoding == DW_ATE_signed || encoding == DW_ATE_signed_char;
  argument.kind = is_plain_char(type) && !argument.is_bitfield ? Kind::character
                  : is_signed                                  ? Kind::signed_decimal
                                                               : Kind::unsigned_decimal;
  return ok();
}

void read_pointer(Location& location) {
  if (location.in_memory) location.steps.push_back({.kind = StepKind::dereference, .value = location.offset});
  location.in_memory = true;
  location.offset = 0;
}

bool leads_elsewhere(int tag) {
  return tag == DW_TAG_pointer_type || tag == DW_TAG_reference_type || tag == DW_TAG_rvalue_reference_type;
}

// An array in a vector register lies there as in memory.
bool is_in_order(const Location& location, Type type) {
  return location.in_memory || (location.steps.back().kind == StepKind::vector && size_of(type) <= shared::kYmmBytes);
}

// Two words, of which each has a place of its own, or both are in order.
Status set_wide(Type type, const Location& location, Argument& argument) {
  if (!argument.upper && !is_in_order(location, type))
    return unfit("is a number of 16 bytes, of which eight are kept here");
  argument.kind = number_in(type.die, DW_AT_encoding) == std::uint64_t{DW_ATE_signed} ? Kind::signed_decimal
                                                                                      : Kind::unsigned_decimal;
  argument.size = 8, argument.count = 2, argument.is_wide = true;
  return ok();
}

Status set_array(Type type, Location& location, Argument& argument) {
  const std::uint64_t count = elements_of(type);
  if (has_several_dimensions(type) || type_of(type.die).tag == DW_TAG_array_type)
    return unfit("is an array of several dimensions",
                 "name its type, such as :u32[6], for the elements one after the other");
  if (is_wide_number(type_of(type.die)))
    return unfit("is an array of numbers of 16 bytes", "name one of them, [0], or a type, such as :x64[4]");
  if (!is_in_order(location, type)) return unfit("is an array that is not in memory");
  if (count == 0 || count > spec::kMaxArray)
    return unfit("is an array of " + (count == 0 ? std::string("unknown length") : std::to_string(count)) + " elements",
                 "name one of them, [0], or its type, such as :u8[16]");
  argument.count = static_cast<std::uint32_t>(count);
  argument.is_text = is_plain_char(type_of(type.die));
  return set_scalar(type_of(type.die), argument);
}

// A type given after the ':' stays; it must not read more than the variable has.
Status keep_type(Type type, Location& location, Argument& argument) {
  const bool is_array = type.tag == DW_TAG_array_type || (is_wide_number(type) && argument.kind != Kind::string);
  if (argument.kind == Kind::string || argument.count != 0) {
    if (!is_array && !leads_elsewhere(type.tag))
      return unfit(argument.is_wide ? "has only " + std::to_string(size_of(type)) + " bytes"
                                    : "is neither a pointer nor an array");
    if (!is_array) read_pointer(location);
    if (argument.upper) return ok();
    if (!is_in_order(location, type)) return unfit("is an array that is not in memory");
    const bool is_bounded = !location.in_memory || is_wide_number(type);
    const bool fits = !is_bounded || (argument.kind != Kind::string && spec::fixed_size(argument) <= size_of(type));
    return fits ? ok() : unfit("has only " + std::to_string(size_of(type)) + " bytes");
  }
  if (is_array || argument.size <= size_of(type)) return ok();
  return unfit("has only " + std::to_string(size_of(type)) + " bytes");
}

// ":s64[4]", for an argument that shows the first elements; empty: they are no numbers.
std::string first_elements(Type element) {
  Argument argument;
  const bool is_number = element.tag == DW_TAG_base_type && set_scalar(element, argument) && !is_wide_number(element);
  if (!is_number) return {};
  const char* letter = argument.kind == Kind::floating ? "f" : argument.kind == Kind::signed_decimal ? "s" : "u";
  return ":" + std::string(letter) + std::to_string(8 * argument.size) + "[4]";
}

// What to write instead of a whole aggregate.
std::string help_for(Type aggregate) {
  const std::string members = members_of(aggregate);
  const auto kind = go_kind_of(aggregate);
  if (is_any_of_go(aggregate)) return "._type is 0 where it holds nothing, .data is the address of what it holds";
  if (const auto element = kind == kGoSlice ? element_of_slice(aggregate) : std::nullopt) {
    const std::string some = first_elements(*element);
    return ".len is how many elements it has, .array[0] the first" +
           (some.empty() ? "" : ", .array" + some + " the first four, whether it has so many or not");
  }
  return "name one of its members" + (members.empty() ? "" : ": " + members);
}

constexpr int kDeepestName = 16;  // damaged files may have types that are their own

std::string name_within(Dwarf_Die typed, int depth) {
  Dwarf_Attribute attribute;
  Dwarf_Die die;
  if (dwarf_attr_integrate(&typed, DW_AT_type, &attribute) == nullptr || dwarf_formref_die(&attribute, &die) == nullptr)
    return "void";
  if (depth > kDeepestName) return "...";
  switch (dwarf_tag(&die)) {
    case DW_TAG_pointer_type:
      return name_within(die, depth + 1) + " *";
    case DW_TAG_reference_type:
      return name_within(die, depth + 1) + " &";
    case DW_TAG_const_type:
      return "const " + name_within(die, depth + 1);
    case DW_TAG_volatile_type:
      return "volatile " + name_within(die, depth + 1);
    case DW_TAG_restrict_type:
      return name_within(die, depth + 1);
    case DW_TAG_array_type:
      return name_within(die, depth + 1) + "[" + std::to_string(elements_of({die, DW_TAG_array_type})) + "]";
    case DW_TAG_structure_type:
      return "struct " + die_name(die);
    case DW_TAG_union_type:
      return "union " + die_name(die);
    case DW_TAG_enumeration_type:
      return "enum " + die_name(die);
    case DW_TAG_subroutine_type:
      return name_within(die, depth + 1) + " ()";
    default:
      return die_name(die);
  }
}

}  // namespace

bool has_several_dimensions(Type array) {
  int dimensions = 0;
  each_child(array.die, [&](Dwarf_Die&) { ++dimensions; });
  return dimensions > 1;
}

std::uint64_t elements_of(Type array) {
  Dwarf_Die child;
  if (dwarf_child(&array.die, &child) != 0) return 0;
  if (const auto count = number_in(child, DW_AT_count)) return *count;
  const auto last = number_in(child, DW_AT_upper_bound);
  return last ? *last + 1 : 0;
}

Type type_of(Dwarf_Die variable) {
  Dwarf_Attribute attribute;
  Type type{};
  if (dwarf_attr_integrate(&variable, DW_AT_type, &attribute) == nullptr) return type;
  if (dwarf_formref_die(&attribute, &type.die) == nullptr) return type;
  if (dwarf_peel_type(&type.die, &type.die) != 0) return {};
  type.tag = dwarf_tag(&type.die);
  return type;
}

std::uint64_t size_of(Type type) {
  if (type.tag == 0) return 0;
  if (leads_elsewhere(type.tag)) return 8;
  Dwarf_Word size = 0;
  return dwarf_aggregate_size(&type.die, &size) == 0 ? size : 0;
}

bool is_wide_number(Type type) {
  constexpr std::uint64_t kWide = 16;
  if (type.tag != DW_TAG_base_type || size_of(type) != kWide) return false;
  const std::uint64_t encoding = number_in(type.die, DW_AT_encoding).value_or(0);
  return encoding == DW_ATE_signed || encoding == DW_ATE_unsigned;
}

std::string members_of(Type aggregate) {
  std::string names;
  each_child(aggregate.die, [&](Dwarf_Die& die) {
    if (dwarf_tag(&die) != DW_TAG_member || is_static_member(die)) return;
    if (const char* own = dwarf_diename(&die); own != nullptr) names += (names.empty() ? "" : ", ") + std::string(own);
  });
  return names;
}

std::string name_of(Dwarf_Die typed) { return name_within(typed, 0); }

Status set_type(Type type, Location& location, Argument& argument) {
  if (argument.has_type) return keep_type(type, location, argument);
  if (is_wide_number(type)) return set_wide(type, location, argument);
  switch (type.tag) {
    case 0:
      return unfit("has no type");
    case DW_TAG_structure_type:
    case DW_TAG_class_type:
    case DW_TAG_union_type:
      return unfit("is a struct or union", help_for(type));
    case DW_TAG_array_type:
      return set_array(type, location, argument);
    default:
      break;
  }
  if (type.tag == DW_TAG_pointer_type && is_plain_char(type_of(type.die))) {
    argument.kind = Kind::string;
    argument.size = 4;
    read_pointer(location);
    return ok();
  }
  return set_scalar(type, argument);  // a constant has the bits of its type, also a floating one
}

}  // namespace uprobe::dwarf
