// SPDX-License-Identifier: MIT
// Location expressions, as far as a fetch can follow them.
#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "arch/abi/dwarf_registers.h"
#include "engine/dwarf/body.h"
#include "engine/dwarf/variable.h"

namespace uprobe::dwarf {
namespace {

using spec::Step;
using spec::StepKind;

struct Expression {
  Dwarf_Op* ops = nullptr;
  std::size_t count = 0;
};

Error gone() { return Error{.code = Code::refused, .text = "is optimised away here"}; }
Error not_understood(std::string what) { return Error{.code = Code::refused, .text = std::move(what)}; }

std::optional<Step> register_step(std::uint64_t number) {
  if (number >= arch::kDebugRegisters) return {};
  return Step{.kind = StepKind::reg, .reg = arch::kByFrameNumber[number]};
}

// No address is in a vector register.
std::optional<Step> any_register_step(std::uint64_t number) {
  constexpr std::uint64_t kFirst = arch::kFirstVectorNumber;
  if (number < kFirst || number - kFirst >= shared::kVectorCount) return register_step(number);
  return Step{.kind = StepKind::vector, .value = number - kFirst};
}

// A register and a distance: bregN, bregx.
std::optional<std::pair<std::uint64_t, std::uint64_t>> register_and_distance(const Dwarf_Op& op) {
  if (op.atom >= DW_OP_breg0 && op.atom <= DW_OP_breg31) return std::pair(op.atom - DW_OP_breg0 + 0ull, op.number);
  if (op.atom == DW_OP_bregx) return std::pair(op.number, op.number2);
  return {};
}

Result<Location> memory_at(std::uint64_t number, std::uint64_t distance) {
  const auto step = register_step(number);
  if (!step) return not_understood("is found by a register that cannot be fetched");
  return Location{.steps = {*step}, .in_memory = true, .offset = distance};
}

// The CFA's register and distance at an address, from the unwind information.
std::optional<std::pair<std::uint64_t, std::uint64_t>> frame_top(const DebugInfo::Handles& handles,
                                                                 std::uint64_t address) {
  Dwarf_Frame* found = nullptr;
  Dwarf_CFI* tables[] = {handles.frames.get(), dwarf_getcfi(handles.debug)};
  for (Dwarf_CFI* table : tables)
    if (found == nullptr && table != nullptr && dwarf_cfi_addrframe(table, address, &found) != 0) found = nullptr;
  const std::unique_ptr<Dwarf_Frame, decltype(&std::free)> frame(found, &std::free);
  Dwarf_Op* ops = nullptr;
  std::size_t count = 0;
  if (frame == nullptr || dwarf_frame_cfa(frame.get(), &ops, &count) != 0 || count != 1) return {};
  return register_and_distance(ops[0]);
}

Error unknown_frame() { return not_understood("is in a frame whose place is not known here"); }

// The stack pointer before the call.
Result<Location> call_frame(const DebugInfo::Handles& handles, std::uint64_t address) {
  const auto top = frame_top(handles, address);
  return top ? memory_at(top->first, top->second) : unknown_frame();
}

// Go writes a frame base as a block, which libdw takes for no expression; up to 127 bytes the two have the same form.
void take_block_for_expression(Dwarf_Attribute& attribute) {
  Dwarf_Block block{};
  if (attribute.form == DW_FORM_block1 && dwarf_formblock(&attribute, &block) == 0 && block.length < 128)
    attribute.form = DW_FORM_exprloc;
}

// The compiler's frame base: the CFA, or a register that holds it only from the prologue to the epilogue.
Result<Location> frame_base(const DebugInfo::Handles& handles, const Scopes& scopes, std::uint64_t address) {
  auto function = function_of(scopes);
  Dwarf_Attribute attribute;
  Dwarf_Op* ops = nullptr;
  std::size_t count = 0;
  if (!function || dwarf_attr_integrate(&*function, DW_AT_frame_base, &attribute) == nullptr) return unknown_frame();
  take_block_for_expression(attribute);
  if (dwarf_getlocation_addr(&attribute, address, &ops, &count, 1) != 1 || count != 1) return unknown_frame();
  if (ops[0].atom == DW_OP_call_frame_cfa) return call_frame(handles, address);
  const auto top = frame_top(handles, address);
  if (is_everywhere(attribute) && (!top || top != frame_top(handles, end_of_prologue(handles, *function))))
    return unknown_frame();
  if (ops[0].atom >= DW_OP_reg0 && ops[0].atom <= DW_OP_reg31) return memory_at(ops[0].atom - DW_OP_reg0, 0);
  const auto known = register_and_distance(ops[0]);
  return known ? memory_at(known->first, known->second) : unknown_frame();
}

std::optional<std::uint64_t> constant_of(const Dwarf_Op& op) {
  if (op.atom >= DW_OP_lit0 && op.atom <= DW_OP_lit31) return op.atom - DW_OP_lit0 + 0ull;
  switch (op.atom) {
    case DW_OP_const1u:
    case DW_OP_const1s:
    case DW_OP_const2u:
    case DW_OP_const2s:
    case DW_OP_const4u:
    case DW_OP_const4s:
    case DW_OP_const8u:
    case DW_OP_const8s:
    case DW_OP_constu:
    case DW_OP_consts:
      return op.number;
    default:
      return {};
  }
}

Location constant(std::uint64_t value) { return {.steps = {{.kind = StepKind::constant, .value = value}}}; }

Location constant_pair(std::uint64_t lower, std::uint64_t upper) {
  constexpr std::uint64_t kWord = sizeof lower;
  return {.pieces = {{kWord, constant(lower), {}}, {kWord, constant(upper), {}}}};
}

// Up to eight bytes, or a number of 16.
std::optional<Location> constant_bytes(const Dwarf_Block& block) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  std::uint64_t words[2] = {};
  if (block.length > kWord && block.length != sizeof words) return {};
  std::copy_n(block.data, block.length, reinterpret_cast<std::uint8_t*>(words));
  if (block.length <= kWord) return constant(words[0]);
  return constant_pair(words[0], words[1]);
}

// The context of an expression.
struct Place {
  const DebugInfo::Handles& handles;
  Dwarf_Attribute& attribute;
  const Scopes& scopes;
  std::uint64_t address;
  std::uint64_t bytes;  // of the variable; 0: not known
  bool is_boolean;
};

// A link-time address; DWARF 5 may keep it in a table.
std::optional<std::uint64_t> address_of(const Place& place, const Dwarf_Op& op) {
  if (op.atom == DW_OP_addr) return op.number;
  Dwarf_Attribute indirect;
  Dwarf_Addr address = 0;
  const bool is_indirect = op.atom == DW_OP_addrx || op.atom == DW_OP_GNU_addr_index;
  if (!is_indirect || dwarf_getlocation_attr(&place.attribute, &op, &indirect) != 0 ||
      dwarf_formaddr(&indirect, &address) != 0)
    return {};
  return address;
}

bool is_entry_value(const Dwarf_Op& op) { return op.atom == DW_OP_entry_value || op.atom == DW_OP_GNU_entry_value; }

// Whether control comes to the address only as the function is called: it is its first instruction, and none of its own jumps leads
// there.
bool is_just_called(const Place& place) {
  const auto function = function_of(place.scopes);
  Dwarf_Die die = function.value_or(Dwarf_Die{});
  Dwarf_Addr entry = 0;
  if (!function || dwarf_entrypc(&die, &entry) != 0 || entry != place.address) return false;
  const Body body = body_of(place.handles, die);
  const auto leads_back = [&](const Jump& jump) { return jump.to == entry; };
  return body.is_known && body.computed.empty() && std::ranges::none_of(body.jumps, leads_back);
}

// What a register held at the function's entry: what it holds there.
Result<Location> entry_value(const Place& place, const Dwarf_Op& op) {
  const Error unknown = not_understood("is not kept here: only what it was at the function's entry could be known");
  Dwarf_Attribute inner;
  Dwarf_Op* ops = nullptr;
  std::size_t count = 0;
  if (dwarf_getlocation_attr(&place.attribute, &op, &inner) != 0 || dwarf_getlocation(&inner, &ops, &count) != 0 ||
      count != 1 || !is_just_called(place))
    return unknown;
  const bool is_register = ops[0].atom >= DW_OP_reg0 && ops[0].atom <= DW_OP_reg31;
  return is_register ? memory_at(ops[0].atom - DW_OP_reg0, 0) : unknown;
}

// The source at the start of an expression, if that is an address or a part of one.
Result<Location> source_of(const Place& place, const Dwarf_Op& op) {
  if (is_entry_value(op)) return entry_value(place, op);
  if (const auto known = register_and_distance(op)) return memory_at(known->first, known->second);
  if (const auto known = address_of(place, op))
    return Location{.steps = {{.kind = StepKind::file_offset, .value = *known}}, .in_memory = true};
  if (op.atom == DW_OP_call_frame_cfa)
    return call_frame(place.handles, place.address);  // Go's first argument on the stack
  if (op.atom != DW_OP_fbreg) return not_understood("has a location that cannot be followed");
  auto frame = frame_base(place.handles, place.scopes, place.address);
  if (!frame) return frame;
  frame->offset += op.number;
  return frame;
}

// Applies an addition or a load. False: another operation.
bool apply(const Expression& expression, std::size_t& at, Location& location) {
  const Dwarf_Op& op = expression.ops[at];
  const bool has_operand = at + 1 < expression.count;
  if (op.atom == DW_OP_plus_uconst) return location.offset += op.number, true;
  if (op.atom == DW_OP_deref) {
    location.steps.push_back({.kind = StepKind::dereference, .value = std::exchange(location.offset, 0)});
    return true;
  }
  const auto number = constant_of(op);
  if (!number || !has_operand) return false;
  const unsigned sign = expression.ops[++at].atom;
  location.offset += sign == DW_OP_minus ? 0 - *number : *number;
  return sign == DW_OP_plus || sign == DW_OP_minus;
}

// The address of memory that holds a value.
Result<Location> address_in(const Place& place, const Expression& expression) {
  auto location = source_of(place, expression.ops[0]);
  for (std::size_t at = 1; location && at < expression.count; ++at)
    if (!apply(expression, at, *location)) return not_understood("has a location that cannot be followed");
  return location;
}

// Whether the lowest bytes of an integer stay what they are in a conversion. One bit of a boolean is all of it.
bool keeps_low_bytes(const Place& place, Dwarf_Die type) {
  const std::uint64_t encoding = number_in(type, DW_AT_encoding).value_or(DW_ATE_float);
  const char* name = dwarf_diename(&type);
  const bool is_bit = name != nullptr && std::string_view(name).ends_with("_1");
  const bool is_integer = encoding == DW_ATE_unsigned || encoding == DW_ATE_signed || encoding == DW_ATE_boolean;
  return is_integer && (!is_bit || place.is_boolean) && dwarf_bytesize(&type) >= static_cast<int>(place.bytes);
}

// clang's "register; mask; and; convert": what is left away is above the bytes that the variable has.
bool only_narrows(const Place& place, const Expression& expression) {
  if (place.bytes == 0 || place.bytes > sizeof(std::uint64_t) || expression.count < 3) return false;
  for (std::size_t at = 1; at + 1 < expression.count; ++at) {
    const Dwarf_Op& op = expression.ops[at];
    Dwarf_Die type;
    if (op.atom == DW_OP_convert || op.atom == DW_OP_GNU_convert) {
      if (dwarf_getlocation_die(&place.attribute, &op, &type) != 0 || !keeps_low_bytes(place, type)) return false;
      continue;
    }
    const auto mask = constant_of(op);
    const bool is_mask =
        mask && (*mask & (*mask + 1)) == 0 && static_cast<std::uint64_t>(std::bit_width(*mask)) >= 8 * place.bytes;
    if (!is_mask || at + 2 >= expression.count || expression.ops[++at].atom != DW_OP_and) return false;
  }
  return true;
}

// Ends in DW_OP_stack_value: the value itself, which is stored nowhere.
Result<Location> computed(const Place& place, const Expression& expression) {
  const Dwarf_Op& first = expression.ops[0];
  const auto value = constant_of(first);
  if (value && expression.count == 2) return constant(*value);
  if (const auto known = register_and_distance(first); known && known->second == 0 && only_narrows(place, expression))
    if (const auto step = register_step(known->first)) return Location{.steps = {*step}};
  auto location = address_in(place, {expression.ops, expression.count - 1});
  if (!location && is_entry_value(first)) return location;
  if (!location) return not_understood("is not kept here: the compiler computes it where it needs it");
  location->in_memory = false;
  if (const std::uint64_t distance = std::exchange(location->offset, 0); distance != 0)
    location->steps.push_back({.kind = StepKind::add, .value = distance});
  return location;
}

Result<Location> follow_whole(const Place& place, const Expression& expression) {
  if (expression.count == 0) return gone();
  if (expression.ops[expression.count - 1].atom == DW_OP_stack_value) return computed(place, expression);
  const Dwarf_Op& first = expression.ops[0];
  if (expression.count != 1) return address_in(place, expression);
  if (first.atom == DW_OP_implicit_value) {
    Dwarf_Block block{};
    if (dwarf_getlocation_implicit_value(&place.attribute, &first, &block) == 0)
      if (auto known = constant_bytes(block)) return std::move(*known);
    return not_understood("has a location that cannot be followed");
  }
  const bool is_register = first.atom >= DW_OP_reg0 && first.atom <= DW_OP_reg31;
  if (!is_register && first.atom != DW_OP_regx) return address_in(place, expression);
  const auto step = any_register_step(is_register ? first.atom - DW_OP_reg0 : first.number);
  if (!step) return not_understood("is in a register that cannot be fetched");
  return Location{.steps = {*step}};
}

// "... DW_OP_piece N ... DW_OP_piece M": one after the other, some of them nowhere.
Result<Location> follow_pieces(const Place& place, const Expression& expression) {
  Location all;
  for (std::size_t begin = 0, at = 0; at < expression.count; ++at) {
    if (expression.ops[at].atom != DW_OP_piece) continue;
    auto one = follow_whole(place, {expression.ops + begin, at - begin});
    Location::Piece& piece = all.pieces.emplace_back();
    piece.bytes = expression.ops[at].number;
    if (one)
      piece.location = one.take();
    else
      piece.problem = one.error().text;
    begin = at + 1;
  }
  return all;
}

// "N; form_tls_address"
Result<Location> of_thread(const Place& place, const Expression& expression) {
  const auto number = expression.count == 2 ? constant_of(expression.ops[0]) : std::nullopt;
  if (!number) return not_understood("is a thread's own variable whose place is not understood");
  return place_of_thread(*place.handles.file, *number);
}

Result<Location> follow(const Place& place, const Expression& expression) {
  const auto is = [&](unsigned atom) {
    return std::any_of(expression.ops, expression.ops + expression.count,
                       [&](const Dwarf_Op& op) { return op.atom == atom; });
  };
  if (is(DW_OP_bit_piece)) return not_understood("is in pieces of some bits here");
  if (is(DW_OP_implicit_pointer) || is(DW_OP_GNU_implicit_pointer))
    return not_understood("is optimised away here: only what it points to is left");
  if (is(DW_OP_form_tls_address) || is(DW_OP_GNU_push_tls_address)) return of_thread(place, expression);
  return is(DW_OP_piece) ? follow_pieces(place, expression) : follow_whole(place, expression);
}

// A constant in a few bytes does not show whether it is signed. Compilers write numbers below zero in other forms.
Result<Location> constant_in(Dwarf_Attribute& attribute, bool is_wide) {
  const unsigned form = dwarf_whatform(&attribute);
  const bool is_bytes = form == DW_FORM_data1 || form == DW_FORM_data2 || form == DW_FORM_data4;
  Dwarf_Sword value = 0;
  Dwarf_Word bits = 0;
  const auto made = [&](std::uint64_t number, bool is_negative) {
    return is_wide ? constant_pair(number, is_negative ? ~0ull : 0) : constant(number);
  };
  if (!is_bytes && dwarf_formsdata(&attribute, &value) == 0) return made(static_cast<std::uint64_t>(value), value < 0);
  if (dwarf_formudata(&attribute, &bits) == 0) return made(bits, false);
  if (Dwarf_Block block{}; dwarf_formblock(&attribute, &block) == 0)
    if (auto known = constant_bytes(block)) return std::move(*known);
  return not_understood("is a constant that cannot be fetched");
}

}  // namespace

Status settle(Location& location, std::uint64_t bytes) {
  if (!location.pieces.empty()) {
    std::uint64_t begin = 0;
    const auto piece = std::ranges::find_if(location.pieces, [&](const Location::Piece& one) {
      return begin + one.bytes > location.offset || (begin += one.bytes, false);
    });
    if (piece == location.pieces.end()) return not_understood("is in none of the pieces that are kept here");
    if (!piece->problem.empty()) return not_understood(piece->problem);
    if (bytes == 0 || location.offset - begin + bytes > piece->bytes)
      return not_understood("is in several pieces here");
    Location one = piece->location;
    one.offset += location.offset - begin;
    location = std::move(one);
  }
  if (location.in_memory || location.offset == 0) return ok();
  if (location.steps.back().kind == StepKind::vector || location.offset + bytes > 8)
    return not_understood("is in the upper part of a register here");
  location.steps.push_back({.kind = StepKind::shift_right, .value = 8 * std::exchange(location.offset, 0)});
  return ok();
}

Result<Location> location_of(const DebugInfo::Handles& handles, Dwarf_Die variable, const Scopes& scopes,
                             std::uint64_t address) {
  Dwarf_Attribute attribute;
  if (dwarf_attr_integrate(&variable, DW_AT_const_value, &attribute) != nullptr)
    return constant_in(attribute, is_wide_number(type_of(variable)));
  if (dwarf_attr_integrate(&variable, DW_AT_location, &attribute) == nullptr) {
    if (dwarf_hasattr_integrate(&variable, DW_AT_declaration) != 0)
      return Error{
          .code = Code::refused, .text = "is defined in another file", .help = "@SYMBOL reads it by its symbol"};
    return gone();
  }
  Dwarf_Op* ops[2] = {};
  std::size_t counts[2] = {};
  const int found = dwarf_getlocation_addr(&attribute, address, ops, counts, 2);
  if (found < 0) return not_understood("has a location that cannot be read");
  if (found == 0) return gone();
  if (found > 1) return not_understood("has several locations here");
  const Type type = type_of(variable);
  const bool is_boolean =
      type.tag == DW_TAG_base_type && number_in(type.die, DW_AT_encoding) == std::uint64_t{DW_ATE_boolean};
  return follow({handles, attribute, scopes, address, size_of(type), is_boolean}, {ops[0], counts[0]});
}

}  // namespace uprobe::dwarf
