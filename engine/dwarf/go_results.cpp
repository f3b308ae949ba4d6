// SPDX-License-Identifier: MIT
// Results of Go functions as they return. Debug information names them and gives no place: the calling convention does
// (abi-internal.md of the Go sources, since Go 1.17). A result is in registers as a whole, part by part, or on the stack as a whole.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arch/abi/go_registers.h"
#include "engine/dwarf/variable.h"

namespace uprobe::dwarf {
namespace {

using spec::StepKind;

constexpr int kDeepestPart = 16;

Location::Piece at(std::uint64_t bytes, spec::Step step) {
  return {.bytes = bytes, .location = {.steps = {step}}, .problem = {}};
}

// Gives registers to one result after the other.
class Registers {
 public:
  // Nothing: it is on the stack, and takes no register.
  std::optional<Location> take(Type type) {
    const std::size_t numbers = numbers_, floats = floats_;
    pieces_.clear(), filled_ = 0;
    if (!add(type, 0, 0)) return numbers_ = numbers, floats_ = floats, std::nullopt;
    return Location{.pieces = std::move(pieces_)};
  }

 private:
  // `offset`: of the part in the result.
  bool add(Type type, std::uint64_t offset, int depth);
  bool add_number(std::uint64_t offset, std::uint64_t bytes);
  bool add_float(std::uint64_t offset, std::uint64_t bytes);
  bool add_base(Type type, std::uint64_t offset, std::uint64_t bytes);
  void fill_to(std::uint64_t offset);

  std::size_t numbers_ = 0, floats_ = 0;  // in use
  std::vector<Location::Piece> pieces_;
  std::uint64_t filled_ = 0;
};

void Registers::fill_to(std::uint64_t offset) {
  if (offset > filled_)
    pieces_.push_back({.bytes = offset - filled_, .location = {}, .problem = "is between two parts"});
  filled_ = std::max(filled_, offset);
}

bool Registers::add_number(std::uint64_t offset, std::uint64_t bytes) {
  if (numbers_ == std::size(arch::kGoNumbers)) return false;
  fill_to(offset);
  pieces_.push_back(at(bytes, {.kind = StepKind::reg, .reg = arch::kGoNumbers[numbers_++]}));
  filled_ = offset + bytes;
  return true;
}

bool Registers::add_float(std::uint64_t offset, std::uint64_t bytes) {
  if (floats_ == arch::kGoFloats) return false;
  fill_to(offset);
  pieces_.push_back(at(bytes, {.kind = StepKind::vector, .value = floats_++}));
  filled_ = offset + bytes;
  return true;
}

bool Registers::add_base(Type type, std::uint64_t offset, std::uint64_t bytes) {
  switch (number_in(type.die, DW_AT_encoding).value_or(0)) {
    case DW_ATE_float:
      return add_float(offset, bytes);
    case DW_ATE_complex_float:
      return add_float(offset, bytes / 2) && add_float(offset + bytes / 2, bytes / 2);
    default:
      return bytes <= 8 && add_number(offset, bytes);
  }
}

bool Registers::add(Type type, std::uint64_t offset, int depth) {
  const std::uint64_t bytes = size_of(type);
  if (depth > kDeepestPart) return false;
  switch (type.tag) {
    case DW_TAG_base_type:
      return bytes != 0 && add_base(type, offset, bytes);
    case DW_TAG_pointer_type:
    case DW_TAG_subroutine_type:
      return add_number(offset, 8);
    case DW_TAG_array_type:
      if (bytes == 0) return true;
      return elements_of(type) == 1 && add(type_of(type.die), offset, depth + 1);
    case DW_TAG_structure_type:
      break;
    default:
      return false;
  }
  bool fits = true;
  each_child(type.die, [&](Dwarf_Die& die) {
    if (!fits || dwarf_tag(&die) != DW_TAG_member) return;
    const auto distance = number_in(die, DW_AT_data_member_location);
    fits = distance && *distance <= bytes && add(type_of(die), offset + *distance, depth + 1);
  });
  return fits;
}

// Whether the function was compiled for registers: an assembler's, and those of older compilers, have their results on the stack.
bool returns_in_registers(Dwarf_Die function) {
  constexpr std::string_view kCompiler = "Go cmd/compile", kRegisters = "regabi";
  Dwarf_Die unit;
  Dwarf_Attribute attribute;
  if (dwarf_diecu(&function, &unit, nullptr, nullptr) == nullptr ||
      dwarf_attr(&unit, DW_AT_producer, &attribute) == nullptr)
    return false;
  const char* producer = dwarf_formstring(&attribute);
  const std::string_view text = producer == nullptr ? "" : producer;
  return text.starts_with(kCompiler) && text.find(kRegisters) != std::string_view::npos;
}

bool is_result(Dwarf_Die die) {
  Dwarf_Attribute attribute;
  bool is_set = false;
  return dwarf_tag(&die) == DW_TAG_formal_parameter &&
         dwarf_attr_integrate(&die, DW_AT_variable_parameter, &attribute) != nullptr &&
         dwarf_formflag(&attribute, &is_set) == 0 && is_set;
}

// "r0" is the compiler's "~r0", a result without a name.
bool is_named(Dwarf_Die die, std::string_view name) {
  const char* own = dwarf_diename(&die);
  if (own == nullptr) return false;
  return name == own || (own[0] == '~' && name == own + 1);
}

}  // namespace

Result<GoResult> find_go_result(const Scopes& scopes, std::string_view name) {
  const auto function = function_of(scopes);
  if (!function || !returns_in_registers(*function))
    return Error{.code = Code::refused,
                 .text = "a function's variables no longer exist when it has returned",
                 .help = "$retval is the value that it returned"};
  Registers registers;
  std::optional<GoResult> found;
  std::optional<Location> place;
  std::string names;
  each_child(*function, [&](Dwarf_Die& die) {
    if (!is_result(die)) return;
    auto location = registers.take(type_of(die));
    const char* own = dwarf_diename(&die);
    if (own != nullptr) names += (names.empty() ? "" : ", ") + std::string(own[0] == '~' ? own + 1 : own);
    if (found || !is_named(die, name)) return;
    found = GoResult{.die = die, .location = {}};
    place = std::move(location);
  });
  if (!found)
    return Error{.code = Code::refused,
                 .text = "the function returns no '" + std::string(name) + "'",
                 .help = names.empty() ? "" : "it returns: " + names};
  if (place && place->pieces.empty())
    return Error{.code = Code::refused, .text = "'" + std::string(name) + "' has no bytes"};
  if (!place) return Error{.code = Code::refused, .text = "'" + std::string(name) + "' is returned on the stack"};
  found->location = std::move(*place);
  return *found;
}

}  // namespace uprobe::dwarf
