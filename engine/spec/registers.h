// The names of registers in definitions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/shared/layout.h"

namespace uprobe::spec {

enum class RegisterNames {
  kernel,   // ax, di, r8, flags, orig_ax ...
  extended  // also rax, rdi, rip, rflags
};

std::optional<shared::Reg> find_register(std::string_view name, RegisterNames names);

// The register that holds the function's integer argument `number` (1..6) at its entry (System V).
std::optional<shared::Reg> argument_register(std::uint64_t number);

// What to write instead of an unknown name, a line for the user; empty if nothing is near.
std::string register_help(std::string_view name);

}  // namespace uprobe::spec
