// SPDX-License-Identifier: MIT
// Finds function symbols by users' names for them: exact names at once, C++ names after one pass of demangling, made at the
// first request for a name that is no symbol.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/elf/elf_file.h"

namespace uprobe::elf {

// "foo", "foo@V1" (that version), "foo@@V1" (that version, and it must be the default).
struct WantedName {
  std::string_view name;
  std::string_view version;  // empty: any
  bool must_be_default = false;

  static WantedName parse(std::string_view text);
  bool allows(std::string_view symbol_version, bool is_default) const {
    return version.empty() || (version == symbol_version && (is_default || !must_be_default));
  }
};

class NameIndex {
 public:
  // The symbols must outlive the index and not change.
  explicit NameIndex(std::span<const Symbol> symbols);

  // Indexes of the symbols of that name (without version), in the symbols' order: exact ones, else C++ names.
  std::vector<std::uint32_t> find(std::string_view name) const;
  // Names that the user may have meant, best first, no two equal. The order depends on the names alone.
  std::vector<std::string> close_to(std::string_view name, std::size_t most) const;

 private:
  using Entry = std::pair<std::size_t, std::uint32_t>;  // hash of a name, index of its symbol; sorted

  void demangle_all() const;
  std::vector<std::uint32_t> find_exact(std::string_view name) const;
  std::vector<std::uint32_t> find_spoken(std::string_view name) const;

  std::span<const Symbol> symbols_;
  std::vector<Entry> exact_;
  mutable std::once_flag demangled_;
  mutable std::vector<Entry> spoken_;
  mutable std::vector<std::string> plain_;  // by symbol; empty: not a C++ name
};

}  // namespace uprobe::elf
