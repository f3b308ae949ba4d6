// Register names, and guesses at what a wrong one was meant to be.
#include "engine/spec/registers.h"

#include <array>

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

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// "edi" is the low half of di, "al" the low byte of ax.
std::string narrow_help(const std::string& name) {
  if (name.size() == 3 && name[0] == 'e' && by_name(name.substr(1))) return "%" + name.substr(1) + ":u32";
  if (name.size() == 2 && name[1] == 'l' && by_name(std::string{name[0], 'x'}))
    return "%" + std::string{name[0], 'x'} + ":u8";
  if (name.size() == 3 && name[2] == 'l' && by_name(name.substr(0, 2))) return "%" + name.substr(0, 2) + ":u8";
  if (name.size() >= 3 && name[0] == 'r' && name.back() == 'd' && by_name(name.substr(0, name.size() - 1)))
    return "%" + name.substr(0, name.size() - 1) + ":u32";
  return {};
}

}  // namespace

std::optional<Reg> find_register(std::string_view name, RegisterNames names) {
  if (const auto reg = by_name(name)) return reg;
  if (names == RegisterNames::kernel || !name.starts_with('r')) return {};
  const auto reg = by_name(name.substr(1));
  return reg && has_64_bit_name(*reg) ? reg : std::nullopt;
}

std::optional<Reg> argument_register(std::uint64_t number) {
  if (number < 1 || number > std::size(kArguments)) return {};
  return kArguments[number - 1];
}

std::string register_help(std::string_view name) {
  const std::string small = lower(name);
  std::string better = narrow_help(small);
  if (better.empty() && find_register(small, RegisterNames::extended)) better = "%" + small;
  if (better.empty()) {
    const std::string near = nearest(small, kNames);
    if (!near.empty()) better = "%" + near;
  }
  if (better.empty()) return "registers are ax bx cx dx si di bp sp ip r8..r15 flags cs ss orig_ax";
  return "did you mean '" + better + "'?";
}

}  // namespace uprobe::spec
