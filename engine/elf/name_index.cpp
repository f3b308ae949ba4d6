// SPDX-License-Identifier: MIT
// Exact and demangled lookup over the function symbols of one file.
#include "engine/elf/name_index.h"

#include <algorithm>
#include <functional>

#include "engine/names/demangle.h"
#include "engine/names/near_names.h"

namespace uprobe::elf {
namespace {

std::size_t hash_of(std::string_view text) { return std::hash<std::string_view>{}(text); }

}  // namespace

WantedName WantedName::parse(std::string_view text) {
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos || at == 0) return {.name = text, .version = {}};
  const bool is_default = text.substr(at).starts_with("@@");
  const std::string_view version = text.substr(at + (is_default ? 2 : 1));
  if (version.empty()) return {.name = text, .version = {}};
  return {.name = text.substr(0, at), .version = version, .must_be_default = is_default};
}

NameIndex::NameIndex(std::span<const Symbol> symbols) : symbols_(symbols) {
  exact_.reserve(symbols.size());
  for (std::uint32_t i = 0; i < symbols.size(); ++i) exact_.emplace_back(hash_of(symbols[i].name), i);
  std::sort(exact_.begin(), exact_.end());
}

void NameIndex::demangle_all() const {
  plain_.resize(symbols_.size());
  std::uint64_t budget = kDemangleBudget;
  for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
    const auto text = demangle_within(symbols_[i].name, budget);
    if (!text) continue;
    SpokenNames names = spoken_names(symbols_[i].name, *text);
    for (const std::string& name : names.accepted) spoken_.emplace_back(hash_of(name), i);
    plain_[i] = std::move(names.plain);
  }
  std::sort(spoken_.begin(), spoken_.end());
}

std::vector<std::uint32_t> NameIndex::find_exact(std::string_view name) const {
  std::vector<std::uint32_t> found;
  const std::size_t hash = hash_of(name);
  for (auto at = std::lower_bound(exact_.begin(), exact_.end(), Entry{hash, 0}); at != exact_.end(); ++at) {
    if (at->first != hash) break;
    if (symbols_[at->second].name == name) found.push_back(at->second);
  }
  return found;
}

// The index holds hashes only; a candidate is demangled once more to be sure.
std::vector<std::uint32_t> NameIndex::find_spoken(std::string_view name) const {
  std::call_once(demangled_, [this] { demangle_all(); });
  std::vector<std::uint32_t> found;
  const std::string wanted = squeeze(name);
  const std::size_t hash = hash_of(wanted);
  for (auto at = std::lower_bound(spoken_.begin(), spoken_.end(), Entry{hash, 0}); at != spoken_.end(); ++at) {
    if (at->first != hash) break;
    const std::string& mangled = symbols_[at->second].name;
    const SpokenNames names = spoken_names(mangled, demangle(mangled));
    if (std::find(names.accepted.begin(), names.accepted.end(), wanted) != names.accepted.end())
      found.push_back(at->second);
  }
  return found;
}

std::vector<std::uint32_t> NameIndex::find(std::string_view name) const {
  std::vector<std::uint32_t> found = find_exact(name);
  return found.empty() ? find_spoken(name) : found;
}

std::vector<std::string> NameIndex::close_to(std::string_view name, std::size_t most) const {
  std::call_once(demangled_, [this] { demangle_all(); });
  NearNames near(name);
  for (std::size_t i = 0; i < symbols_.size(); ++i) near.offer(plain_[i].empty() ? symbols_[i].name : plain_[i]);
  return near.best(most);
}

}  // namespace uprobe::elf
