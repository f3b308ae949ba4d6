// SPDX-License-Identifier: MIT
// The names that users give to registers.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "arch/shared/registers.h"

namespace uprobe::arch {

using shared::Reg;

// By the kernel's names, in the order of Reg: all 64 bits of each.
inline constexpr std::array<std::string_view, shared::kRegCount> kRegisterNames = {
    "ax",  "bx",  "cx",  "dx",  "si",  "di", "bp",    "sp", "r8", "r9",     "r10",
    "r11", "r12", "r13", "r14", "r15", "ip", "flags", "cs", "ss", "orig_ax"};
inline constexpr char kAllRegisterNames[] = "ax bx cx dx si di bp sp ip r8..r15 flags cs ss orig_ax";
inline constexpr char kAllVectorNames[] = "xmm0..xmm15 and ymm0..ymm15";

// A register, or its lowest bytes.
struct RegisterPart {
  Reg reg = Reg::ax;
  std::uint8_t bytes = 8;
};

inline std::optional<Reg> register_by_name(std::string_view name) {
  for (std::size_t i = 0; i < kRegisterNames.size(); ++i) {
    if (kRegisterNames[i] == name) return static_cast<Reg>(i);
  }
  return {};
}

// "a" for ax.
inline std::optional<Reg> register_with_x(std::string_view letter) {
  for (const Reg reg : {Reg::ax, Reg::bx, Reg::cx, Reg::dx})
    if (kRegisterNames[static_cast<std::size_t>(reg)].substr(0, 1) == letter) return reg;
  return {};
}

// The names that take an r before them in 64-bit code: ax..sp, ip, flags.
inline bool has_64_bit_name(Reg reg) { return reg <= Reg::sp || reg == Reg::ip || reg == Reg::flags; }

inline bool is_numbered(Reg reg) { return reg >= Reg::r8 && reg <= Reg::r15; }

// "edi", "eax", "eflags"; "r8d", "r8w", "r8b" (or "r8l"); "dil", "al". The usual names of 16 bits (di, ax) are the kernel's
// names of all 64; a second byte (ah) is not the lowest part.
inline std::optional<RegisterPart> find_part(std::string_view name) {
  const std::string_view start = name.substr(0, name.size() - 1);
  if (const auto reg = register_by_name(start); reg && is_numbered(*reg)) {
    if (name.back() == 'd') return RegisterPart{*reg, 4};
    if (name.back() == 'w') return RegisterPart{*reg, 2};
    if (name.back() == 'b' || name.back() == 'l') return RegisterPart{*reg, 1};
  }
  if (name[0] == 'e')
    if (const auto reg = register_by_name(name.substr(1)); reg && (*reg <= Reg::sp || *reg == Reg::flags))
      return RegisterPart{*reg, 4};
  if (name.back() != 'l') return {};
  if (name.size() == 2)
    if (const auto reg = register_with_x(start)) return RegisterPart{*reg, 1};
  const auto reg = register_by_name(start);
  return reg && *reg >= Reg::si && *reg <= Reg::sp ? std::optional(RegisterPart{*reg, 1}) : std::nullopt;
}

// All names but the kernel's: rdi and the parts.
inline std::optional<RegisterPart> register_by_other_name(std::string_view name) {
  if (const auto part = find_part(name)) return part;
  if (!name.starts_with('r')) return {};
  const auto reg = register_by_name(name.substr(1));
  return reg && has_64_bit_name(*reg) ? std::optional(RegisterPart{*reg}) : std::nullopt;
}
// ah and its like, which are no lowest part: the register.
inline std::optional<Reg> register_of_second_byte(std::string_view name) {
  return name.size() == 2 && name[1] == 'h' ? register_with_x(name.substr(0, 1)) : std::nullopt;
}

// What vector registers are called before their number, and how many bytes each has; 0: they cannot be fetched.
struct VectorBank {
  std::string_view name;
  std::uint8_t bytes;
};
inline constexpr VectorBank kVectorBanks[] = {{"xmm", shared::kXmmBytes}, {"ymm", shared::kYmmBytes}, {"zmm", 0}};

}  // namespace uprobe::arch
