// SPDX-License-Identifier: MIT
// C++ names in the forms that users write.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace uprobe::elf {

// Returns the name unchanged if it is not mangled, or would expand too far.
std::string demangle(const std::string& name);

// The same without parameters and return type: "ns::f<int>".
std::string plain_name(const std::string& name);

// Whether the pattern (as in a shell) matches the demangled name: as a whole, or without the return type, which only templates have.
bool matches_spoken(const std::string& pattern, const std::string& demangled);

// Demangling costs as much as the name expands to, and a hostile name of 200 characters expands to gigabytes. `budget` is the
// remaining work for a file, in characters; names that may cost more are not demangled.
inline constexpr std::uint64_t kDemangleBudget = std::uint64_t{256} << 20;
std::optional<std::string> demangle_within(const std::string& mangled, std::uint64_t& budget);

// The names of a function, without spaces and ABI tags (see squeeze).
//   full    "ns::f<int>(int)", for templates with the return type before it
//   others  without parameter list; without return type, with and without parameter list; "ns::f", without the
//           template arguments at its end
struct SpokenNames {
  std::vector<std::string> accepted;  // squeezed; the full name first, no two equal
  std::string plain;                  // for output: without return type and parameter list
};
SpokenNames spoken_names(std::string_view mangled, std::string_view demangled);

// Without spaces and "[abi:...]" tags: two spellings of one name become equal.
std::string squeeze(std::string_view name);

}  // namespace uprobe::elf
