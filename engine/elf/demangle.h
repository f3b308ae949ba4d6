// SPDX-License-Identifier: MIT
// C++ names in the forms that people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace uprobe::elf {

// Demangling costs what the name expands to, and a hostile name of 200 characters expands to gigabytes. `budget` is the
// work, in characters, that is left for a file; names that may cost more are not demangled.
inline constexpr std::uint64_t kDemangleBudget = std::uint64_t{256} << 20;
std::optional<std::string> demangle_within(const std::string& mangled, std::uint64_t& budget);

// What a function may be called, without spaces and ABI tags (see squeeze).
//   full    "ns::f<int>(int)" with the return type that templates have in front
//   others  without parameter list; without return type, with and without parameter list; "ns::f", without the
//           template arguments at its end
struct SpokenNames {
  std::vector<std::string> accepted;  // squeezed; the full name first, no two equal
  std::string plain;                  // for people: without return type and parameter list
};
SpokenNames spoken_names(std::string_view mangled, std::string_view demangled);

// Without spaces and "[abi:...]" tags: two spellings of one name become equal.
std::string squeeze(std::string_view name);

}  // namespace uprobe::elf
