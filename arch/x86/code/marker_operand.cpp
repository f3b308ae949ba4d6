// SPDX-License-Identifier: MIT
// AT&T syntax: "$CONSTANT", "%REGISTER", "[DISPLACEMENT](BASE,INDEX,SCALE)".
#include "arch/code/marker_operand.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <utility>

#include "arch/abi/register_names.h"

namespace uprobe::arch {
namespace {

using Kind = MarkerOperand::Kind;
using shared::Reg;

constexpr std::size_t kLongestName = 256;  // of a symbol
constexpr std::string_view kInstruction = "%rip";

Error refused(std::string text) { return Error{.code = Code::refused, .text = std::move(text)}; }

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '$';
}

bool is_symbol(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && !(text[0] >= '0' && text[0] <= '9') &&
         std::all_of(text.begin(), text.end(), is_name_character);
}

// Decimal, or hexadecimal after "0x"; with a sign. Of 64 bits, signed or not.
std::optional<std::int64_t> number_of(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const bool is_hex = text.starts_with("0x");
  if (is_hex) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, is_hex ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  if (is_negative && value > std::uint64_t{1} << 63) return {};
  return static_cast<std::int64_t>(is_negative ? 0 - value : value);
}

// The assembler's names: "ax" is 16 bits here.
std::optional<RegisterPart> register_part(std::string_view name) {
  if (name.size() < 2) return {};
  if (const auto reg = register_by_name(name)) {
    if (is_numbered(*reg)) return RegisterPart{*reg, 8};
    return *reg <= Reg::sp ? std::optional(RegisterPart{*reg, 2}) : std::nullopt;
  }
  const auto part = register_by_other_name(name);
  return part && (part->reg <= Reg::sp || is_numbered(part->reg)) ? part : std::nullopt;
}

std::optional<Reg> address_register(std::string_view text) {
  if (!text.starts_with('%')) return {};
  const auto part = register_part(text.substr(1));
  return part && part->bytes == 8 ? std::optional(part->reg) : std::nullopt;
}

std::optional<std::uint8_t> vector_number(std::string_view name) {
  constexpr std::string_view kBank = kVectorBanks[0].name;
  const auto number = name.starts_with(kBank) ? number_of(name.substr(kBank.size())) : std::nullopt;
  if (!number || *number < 0 || *number >= static_cast<std::int64_t>(shared::kVectorCount)) return {};
  return static_cast<std::uint8_t>(*number);
}

Result<MarkerOperand> read_register(std::string_view name) {
  if (const auto part = register_part(name))
    return MarkerOperand{.kind = Kind::general, .base = part->reg, .bytes = part->bytes};
  if (const auto reg = register_of_second_byte(name))
    return MarkerOperand{.kind = Kind::general, .base = *reg, .bytes = 1, .is_second_byte = true};
  if (const auto vector = vector_number(name))
    return MarkerOperand{.kind = Kind::vector, .base = {}, .vector = *vector};
  if (name.find(':') != std::string_view::npos) return refused("it is in a segment of the thread");
  return refused("its register is not known");
}

// The sum of at most one symbol and of numbers: "16+table", "table-8", "-4".
struct Sum {
  std::string symbol;
  std::int64_t value = 0;
};

std::optional<Sum> sum_of(std::string_view text) {
  Sum sum;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("+-", 1), text.size());
    const std::string_view term = text.substr(0, end);
    text.remove_prefix(end);
    if (const auto number = number_of(term)) {
      sum.value =
          static_cast<std::int64_t>(static_cast<std::uint64_t>(sum.value) + static_cast<std::uint64_t>(*number));
      continue;
    }
    const std::string_view name = term.starts_with('+') ? term.substr(1) : term;
    if (!sum.symbol.empty() || !is_symbol(name)) return {};
    sum.symbol = std::string(name);
  }
  return sum;
}

Result<Sum> read_sum(std::string_view text) {
  if (text.find('@') != std::string_view::npos) return refused("it is found through a table of the linker");
  auto sum = sum_of(text);
  return sum ? Result<Sum>(std::move(*sum)) : refused("it is no operand of this machine");
}

Result<MarkerOperand> read_constant(std::string_view text) {
  auto sum = read_sum(text);
  if (!sum) return sum.error();
  const Kind kind = sum->symbol.empty() ? Kind::constant : Kind::address;
  if (text.empty()) return refused("it is no operand of this machine");
  return MarkerOperand{.kind = kind, .base = {}, .value = sum->value, .symbol = sum->symbol};
}

// The parts between the parentheses.
struct Address {
  std::array<std::string_view, 3> parts;
  std::size_t count = 0;
};

std::optional<Address> address_of(std::string_view inside) {
  Address address;
  for (bool more = true; more;) {
    if (address.count == address.parts.size()) return {};
    const std::size_t comma = inside.find(',');
    std::string_view part = inside.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    address.parts[address.count++] = part;
    more = comma != std::string_view::npos;
    if (more) inside.remove_prefix(comma + 1);
  }
  return address;
}

std::optional<std::uint8_t> scale_of(std::string_view text) {
  static constexpr std::array<std::string_view, 4> kScales = {"1", "2", "4", "8"};
  const auto found = std::find(kScales.begin(), kScales.end(), text);
  return found == kScales.end() ? std::nullopt : std::optional(static_cast<std::uint8_t>(found - kScales.begin()));
}

Result<MarkerOperand> read_address(const Sum& sum, const Address& address) {
  const auto [base, index, scale] = address.parts;
  if (base == kInstruction && address.count == 1) {
    if (sum.symbol.empty()) return refused("it is given by its distance from the instruction");
    return MarkerOperand{.kind = Kind::memory_of_name, .base = {}, .value = sum.value, .symbol = sum.symbol};
  }
  const Kind kind = sum.symbol.empty() ? Kind::memory : Kind::memory_of_name;
  MarkerOperand operand{.kind = kind, .base = address_register(base), .value = sum.value, .symbol = sum.symbol};
  if (!operand.base && !(base.empty() && address.count > 1)) return refused("its register is not known");
  if (address.count == 1) return operand;
  operand.index = address_register(index);
  const auto by = address.count == 3 ? scale_of(scale) : std::optional(std::uint8_t{0});
  if (!operand.index || !by || operand.index == Reg::sp) return refused("its index is no operand of this machine");
  operand.scale = *by;
  return operand;
}

Result<MarkerOperand> read_memory(std::string_view text) {
  const std::size_t open = text.find('(');
  auto sum = read_sum(text.substr(0, open));
  if (!sum) return sum.error();
  if (open == std::string_view::npos) {
    const Kind kind = sum->symbol.empty() ? Kind::memory : Kind::memory_of_name;
    return MarkerOperand{.kind = kind, .base = {}, .value = sum->value, .symbol = sum->symbol};
  }
  const auto address = text.ends_with(')') ? address_of(text.substr(open + 1, text.size() - open - 2)) : std::nullopt;
  return address ? read_address(*sum, *address) : refused("it is no operand of this machine");
}

}  // namespace

Result<MarkerOperand> read_marker_operand(std::string_view text) {
  if (text.empty()) return refused("it has no operand");
  if (text[0] == '$') return read_constant(text.substr(1));
  if (text[0] == '%') return read_register(text.substr(1));
  return read_memory(text);
}

}  // namespace uprobe::arch
