// SPDX-License-Identifier: MIT
// The names of registers in definitions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/shared/layout.h"

namespace uprobe::spec {

enum class RegisterNames {
  kernel,   // ax, di, r8, flags, orig_ax ...: 64 bits each
  extended  // also the machine's own names, and parts (arch/abi/register_names.h)
};

struct NamedRegister {
  shared::Reg reg = shared::kReturnRegister;
  std::uint8_t bytes = 8;  // the lowest ones
};

std::optional<NamedRegister> find_register(std::string_view name, RegisterNames names);

// The kernel's name.
std::string_view register_name(shared::Reg reg);

// By a bank of vector registers and a number.
struct NamedVector {
  std::uint8_t number = 0;
  std::uint8_t bytes = 16;
};
std::optional<NamedVector> find_vector(std::string_view name);

// The register that holds the function's integer argument `number` (1..6) at its entry (System V).
std::optional<shared::Reg> argument_register(std::uint64_t number);

// The name to write instead of an unknown one, a line for the user; empty if no name is near.
std::string register_help(std::string_view name, RegisterNames names);

}  // namespace uprobe::spec
