// SPDX-License-Identifier: MIT
// Register names, and guesses for wrong ones.
#include "engine/spec/registers.h"

#include <array>

#include "engine/spec/number.h"
#include "engine/spec/suggest.h"

namespace uprobe::spec {
namespace {

using shared::Reg;

// In the order of shared::Reg.
constexpr std::array<std::string_view, shared::kRegCount> kNames = {
    "ax",  "bx",  "cx",  "dx",  "si",  "di", "bp",    "sp", "r8", "r9",     "r10",
    "r11", "r12", "r13", "r14", "r15", "ip", "flags", "cs", "ss", "orig_ax"};

constexpr Reg kArguments[] = {Reg::di, Reg::si, Reg::dx, Reg::cx, Reg::r8, Reg::r9};

std::optional<Reg> by_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Reg>(i);
  }
  return {};
}

// The names that take an r before them in 64-bit code: ax..sp, ip, flags.
bool has_64_bit_name(Reg reg) { return reg <= Reg::sp || reg == Reg::ip || reg == Reg::flags; }

bool is_numbered(Reg reg) { return reg >= Reg::r8 && reg <= Reg::r15; }

// "edi", "eax", "eflags"; "r8d", "r8w", "r8b" (or "r8l"); "dil", "al". The usual names of 16 bits (di, ax) are the kernel's
// names of all 64; a second byte (ah) is not the lowest part.
std::optional<NamedRegister> find_part(std::string_view name) {
  const std::string_view start = name.substr(0, name.size() - 1);
  if (const auto reg = by_name(start); reg && is_numbered(*reg)) {
    if (name.back() == 'd') return NamedRegister{*reg, 4};
    if (name.back() == 'w') return NamedRegister{*reg, 2};
    if (name.back() == 'b' || name.back() == 'l') return NamedRegister{*reg, 1};
  }
  if (name[0] == 'e')
    if (const auto reg = by_name(name.substr(1)); reg && (*reg <= Reg::sp || *reg == Reg::flags))
      return NamedRegister{*reg, 4};
  if (name.back() != 'l') return {};
  if (name.size() == 2)
    if (const auto reg = by_name(std::string(start) + "x")) return NamedRegister{*reg, 1};
  const auto reg = by_name(start);
  return reg && *reg >= Reg::si && *reg <= Reg::sp ? std::optional(NamedRegister{*reg, 1}) : std::nullopt;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// The kernel's spelling of a name that it does not know: "%di:u32" for edi.
std::string kernel_spelling(NamedRegister found) {
  const std::string name = "%" + std::string(kNames[static_cast<std::size_t>(found.reg)]);
  return found.bytes == 8 ? name : name + ":u" + std::to_string(found.bytes * 8);
}

}  // namespace

std::optional<NamedRegister> find_register(std::string_view name, RegisterNames names) {
  if (name.empty()) return {};
  if (const auto reg = by_name(name)) return NamedRegister{*reg};
  if (names == RegisterNames::kernel) return {};
  if (const auto part = find_part(name)) return part;
  if (!name.starts_with('r')) return {};
  const auto reg = by_name(name.substr(1));
  return reg && has_64_bit_name(*reg) ? std::optional(NamedRegister{*reg}) : std::nullopt;
}

std::optional<NamedVector> find_vector(std::string_view name) {
  const bool is_ymm = name.starts_with("ymm");
  if (!is_ymm && !name.starts_with("xmm")) return {};
  const std::string_view digits = name.substr(3);
  std::uint64_t number = 0;
  const bool is_number = !digits.empty() && digits.size() <= 2 && (digits[0] != '0' || digits.size() == 1) &&
                         read_unsigned(digits, 10, number) == 0;
  if (!is_number || number >= shared::kVectorCount) return {};
  return NamedVector{static_cast<std::uint8_t>(number),
                     static_cast<std::uint8_t>(is_ymm ? shared::kYmmBytes : shared::kXmmBytes)};
}

std::optional<Reg> argument_register(std::uint64_t number) {
  if (number < 1 || number > std::size(kArguments)) return {};
  return kArguments[number - 1];
}

std::string register_help(std::string_view name, RegisterNames names) {
  const std::string small = lower(name);
  std::string better;
  const bool is_vector = small.starts_with("xmm") || small.starts_with("ymm") || small.starts_with("zmm");
  if (is_vector && names == RegisterNames::kernel) return "uprobe events have no vector registers";
  if (is_vector) return "vector registers are xmm0..xmm15 and ymm0..ymm15";
  if (const auto found = find_register(small, RegisterNames::extended))
    better = names == RegisterNames::kernel ? kernel_spelling(*found) : "%" + small;
  if (small.size() == 2 && small[1] == 'h' && by_name(std::string{small[0], 'x'}))
    better = "%" + std::string{small[0], 'x'} + ":b8@8/16";
  if (better.empty()) {
    const std::string near = nearest(small, kNames);
    if (!near.empty()) better = "%" + near;
  }
  if (better.empty()) return "registers are ax bx cx dx si di bp sp ip r8..r15 flags cs ss orig_ax";
  return "did you mean '" + better + "'?";
}

}  // namespace uprobe::spec
