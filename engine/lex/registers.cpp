// SPDX-License-Identifier: MIT
// Register names, and guesses for wrong ones.
#include "engine/lex/registers.h"

#include <algorithm>

#include "arch/abi/register_names.h"
#include "engine/lex/number.h"
#include "engine/lex/suggest.h"

namespace uprobe::spec {
namespace {

using arch::VectorBank;
using shared::Reg;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// The kernel's spelling of a name that it does not know: "%di:u32" for edi.
std::string kernel_spelling(NamedRegister found) {
  const std::string name = "%" + std::string(arch::kRegisterNames[static_cast<std::size_t>(found.reg)]);
  return found.bytes == 8 ? name : name + ":u" + std::to_string(found.bytes * 8);
}

const VectorBank* bank_of(std::string_view name) {
  const auto found = std::find_if(std::begin(arch::kVectorBanks), std::end(arch::kVectorBanks),
                                  [=](const VectorBank& bank) { return name.starts_with(bank.name); });
  return found == std::end(arch::kVectorBanks) ? nullptr : found;
}

}  // namespace

std::string_view register_name(shared::Reg reg) { return arch::kRegisterNames[static_cast<std::size_t>(reg)]; }

std::optional<NamedRegister> find_register(std::string_view name, RegisterNames names) {
  if (name.empty()) return {};
  if (const auto reg = arch::register_by_name(name)) return NamedRegister{*reg};
  if (names == RegisterNames::kernel) return {};
  const auto part = arch::register_by_other_name(name);
  return part ? std::optional(NamedRegister{part->reg, part->bytes}) : std::nullopt;
}

std::optional<NamedVector> find_vector(std::string_view name) {
  const VectorBank* bank = bank_of(name);
  if (bank == nullptr || bank->bytes == 0) return {};
  const std::string_view digits = name.substr(bank->name.size());
  std::uint64_t number = 0;
  const bool is_number = !digits.empty() && digits.size() <= 2 && (digits[0] != '0' || digits.size() == 1) &&
                         read_unsigned(digits, 10, number) == 0;
  if (!is_number || number >= shared::kVectorCount) return {};
  return NamedVector{static_cast<std::uint8_t>(number), bank->bytes};
}

std::optional<Reg> argument_register(std::uint64_t number) {
  if (number < 1 || number > std::size(shared::kArgumentRegisters)) return {};
  return shared::kArgumentRegisters[number - 1];
}

std::string register_help(std::string_view name, RegisterNames names) {
  const std::string small = lower(name);
  std::string better;
  const bool is_vector = bank_of(small) != nullptr;
  if (is_vector && names == RegisterNames::kernel) return "uprobe events have no vector registers";
  if (is_vector) return std::string("vector registers are ") + arch::kAllVectorNames;
  if (const auto found = find_register(small, RegisterNames::extended))
    better = names == RegisterNames::kernel ? kernel_spelling(*found) : "%" + small;
  if (const auto reg = arch::register_of_second_byte(small)) better = kernel_spelling({*reg}) + ":b8@8/16";
  if (better.empty()) {
    const std::string near = nearest(small, arch::kRegisterNames);
    if (!near.empty()) better = "%" + near;
  }
  if (better.empty()) return std::string("registers are ") + arch::kAllRegisterNames;
  return "did you mean '" + better + "'?";
}

}  // namespace uprobe::spec
