// SPDX-License-Identifier: MIT
// Demangling within bounds, and taking a demangled name apart.
#include "engine/names/demangle.h"

#include <cxxabi.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "engine/names/demangle_rust.h"

namespace uprobe::elf {
namespace {

constexpr std::size_t kMaxMangled = 2048;
constexpr double kMaxGrowthBits = 26;  // 64 MiB; 1 name in 1,000 of large C++ libraries is estimated higher

bool is_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$';
}

// Substitutions ("S1_", "T_") repeat earlier parts: n of them make a name at most 3^(n/3) times longer (three per level, each
// level tripling, is the worst). A pack expansion repeats its pattern at most as often as the name is long. Returns the base-2
// logarithm of the worst length.
double growth_bits(std::string_view mangled) {
  const double length_bits = std::log2(static_cast<double>(mangled.size()));
  double bits = length_bits;
  for (std::size_t i = 0; i + 1 < mangled.size(); ++i) {
    const std::string_view pair = mangled.substr(i, 2);
    if (pair == "Dp" || pair == "sp" || pair == "fl" || pair == "fr" || pair == "fL" || pair == "fR")
      bits += length_bits;
    if (mangled[i] != 'S' && mangled[i] != 'T') continue;
    const std::size_t end = mangled.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", i + 1);
    if (end != std::string_view::npos && mangled[end] == '_') bits += std::log2(3.0) / 3;
  }
  return bits;
}

// "non-virtual thunk to f()", "guard variable for x": the words before the name are not a return type.
bool is_special(std::string_view mangled) { return mangled.starts_with("_ZT") || mangled.starts_with("_ZG"); }

// Where the parameter list starts: the '(' that belongs to the last ')' before the qualifiers. npos: there is none, or the name
// goes on differently ("[clone .cold]" is a part of a function, not the function).
std::size_t parameter_list(std::string_view name) {
  constexpr std::array<std::string_view, 5> kQualifiers{" const", " volatile", " &&", " &", " noexcept"};
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view qualifier : kQualifiers) {
      if (!name.ends_with(qualifier)) continue;
      name.remove_suffix(qualifier.size());
      again = true;
    }
  }
  if (!name.ends_with(')')) return std::string_view::npos;
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')') ++depth;
    if (name[i] == '(' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

bool is_word_at(std::string_view name, std::size_t at, std::string_view word) {
  if (name.substr(at, word.size()) != word || (at != 0 && is_identifier(name[at - 1]))) return false;
  return at + word.size() >= name.size() || !is_identifier(name[at + word.size()]);
}

// Length of the return type and the space after it; 0: none, or not sure. Only the last space outside of all brackets can
// separate the two, and text after the word `operator` belongs to the name.
std::size_t return_type_length(std::string_view name) {
  int depth = 0;
  std::size_t after = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (is_word_at(name, i, "operator")) return depth == 0 ? after : 0;
    if (c == '<' || c == '(' || c == '[' || c == '{') ++depth;
    if (c == '>' || c == ')' || c == ']' || c == '}') --depth;
    if (depth < 0) return 0;
    if (c == ' ' && depth == 0) after = i + 1;
  }
  return depth == 0 ? after : 0;
}

// "ns::f<int>" without "<int>"; unchanged if the end is no argument list ("operator>", "operator->").
std::string_view without_template_arguments(std::string_view name) {
  const std::size_t word = name.rfind("operator");
  if (!name.ends_with('>') || (word != std::string_view::npos && is_word_at(name, word, "operator"))) return name;
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == '>') ++depth;
    if (name[i] == '<' && --depth == 0) return name.substr(0, i);
  }
  return name;
}

void accept(SpokenNames& names, std::string_view text) {
  std::string squeezed = squeeze(text);
  if (squeezed.empty() || std::find(names.accepted.begin(), names.accepted.end(), squeezed) != names.accepted.end())
    return;
  names.accepted.push_back(std::move(squeezed));
}

// "<ns::Cart<T>>::add::<i32>" is also called <ns::Cart<T>>::add, ns::Cart<T>::add and ns::Cart::add.
void accept_rust(SpokenNames& names, std::string_view text) {
  constexpr std::string_view kTurbofish = "::<";
  if (text.ends_with('>')) {
    std::size_t at = text.size();
    for (int depth = 0; at-- > 0;) {
      if (text[at] == '>' && (at == 0 || text[at - 1] != '-')) ++depth;
      if (text[at] == '<' && --depth == 0) break;
    }
    if (at != std::string_view::npos && at >= 2 && text.substr(at - 2).starts_with(kTurbofish))
      text = text.substr(0, at - 2);
    accept(names, text);
  }
  const std::size_t end = text.rfind(">::");
  if (!text.starts_with('<') || end == std::string_view::npos || text.find(" as ") != std::string_view::npos) return;
  const std::string_view type = text.substr(1, end - 1), name = text.substr(end + 1);
  accept(names, std::string(type) + std::string(name));
  accept(names, std::string(type.substr(0, type.find('<'))) + std::string(name));
}

}  // namespace

std::optional<std::string> demangle_within(const std::string& mangled, std::uint64_t& budget) {
  if (mangled.size() > kMaxMangled) return std::nullopt;
  if (auto rust = mangled.starts_with("_R") ? demangle_rust_v0(mangled) : demangle_rust_legacy(mangled)) {
    if (rust->size() > budget) return std::nullopt;
    budget -= rust->size();
    return rust;
  }
  if (!mangled.starts_with("_Z")) return std::nullopt;
  const double bits = growth_bits(mangled);
  if (bits > kMaxGrowthBits) return std::nullopt;
  const auto worst = static_cast<std::uint64_t>(std::exp2(bits));
  if (worst > budget) return std::nullopt;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  // A failure may come after all the work.
  if (status != 0 || text == nullptr) {
    budget -= worst;
    return std::nullopt;
  }
  std::string result(text.get());
  budget -= std::min<std::uint64_t>(budget, result.size());
  return result;
}

std::string demangle(const std::string& name) {
  std::uint64_t budget = kDemangleBudget;
  return demangle_within(name, budget).value_or(name);
}

std::string plain_name(const std::string& name) { return spoken_names(name, demangle(name)).plain; }

bool matches_spoken(const std::string& pattern, const std::string& demangled) {
  if (::fnmatch(pattern.c_str(), demangled.c_str(), 0) == 0) return true;
  const std::size_t parameters = parameter_list(demangled);
  const std::size_t type =
      parameters == std::string::npos ? 0 : return_type_length(std::string_view(demangled).substr(0, parameters));
  return type != 0 && ::fnmatch(pattern.c_str(), demangled.c_str() + type, 0) == 0;
}

SpokenNames spoken_names(std::string_view mangled, std::string_view demangled) {
  SpokenNames names;
  names.plain = demangled;
  accept(names, demangled);
  if (demangle_rust_legacy(mangled) || mangled.starts_with("_R")) {
    accept_rust(names, demangled);
    return names;
  }
  const std::size_t parameters = parameter_list(demangled);
  if (is_special(mangled) || parameters == std::string_view::npos) return names;
  const std::string_view without_parameters = demangled.substr(0, parameters);
  accept(names, without_parameters);
  const std::size_t type = return_type_length(without_parameters);
  accept(names, demangled.substr(type));
  accept(names, without_parameters.substr(type));
  accept(names, without_template_arguments(without_parameters.substr(type)));
  names.plain = without_parameters.substr(type);
  return names;
}

std::string squeeze(std::string_view name) {
  constexpr std::string_view kTag = "[abi:";
  std::string result;
  result.reserve(name.size());
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name.substr(i, kTag.size()) == kTag) {
      i = std::min(name.find(']', i), name.size());
      continue;
    }
    if (name[i] != ' ') result.push_back(name[i]);
  }
  return result;
}

}  // namespace uprobe::elf
