// SPDX-License-Identifier: MIT
#include "engine/patch/semaphores.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>

namespace uprobe::control {
namespace {

using shared::kSemaphores;
using shared::Semaphore;

std::span<const Semaphore> entries_of(const Block& block) {
  return {block.head().semaphores, std::min(block.head().semaphore_count, kSemaphores)};
}

bool has(const std::vector<Addr>& wanted, std::uint64_t address) {
  return std::binary_search(wanted.begin(), wanted.end(), Addr{address});
}

// 0 where it cannot be read.
std::uint16_t value_of(target::Target& target, std::uint64_t address) {
  std::uint16_t value = 0;
  return target.read(Addr{address}, &value, sizeof value) ? value : std::uint16_t{0};
}

bool is_to_go_up(target::Target& target, const Semaphore& entry) {
  return entry.is_up == 0 || value_of(target, entry.address) == 0;
}

// By 1 up or down.
Status count(target::Target& target, Addr at, int by) {
  std::uint16_t value = 0;
  RETURN_IF_ERROR(target.read(at, &value, sizeof value));
  if (by < 0 ? value == 0 : value >= shared::kMostCounted) return ok();
  value = static_cast<std::uint16_t>(value + by);
  return target.write(at, &value, sizeof value);
}

bool is_mapped(const std::vector<target::Mapping>& maps, std::uint64_t address) {
  const target::Mapping* m = target::mapping_at(maps, Addr{address});
  return address % 2 == 0 && m != nullptr && holds_semaphores(*m);
}

// The entry first: a tool that is killed between the two writes leaves a count of 0, which does not go down.
Status count_up(target::Target& target, Block& block, std::size_t index, Addr at) {
  RETURN_IF_ERROR(block.set_semaphore(target, index, {.address = at.value, .is_up = 1, .reserved = 0}));
  return count(target, at, 1);
}

// The index of the address's entry, or of a free one; kSemaphores: there is none.
std::size_t entry_for(const Block& block, std::uint64_t address) {
  const auto entries = entries_of(block);
  const auto find = [&](std::uint64_t wanted) {
    return static_cast<std::size_t>(std::ranges::find(entries, wanted, &Semaphore::address) - entries.begin());
  };
  const std::size_t known = find(address);
  return known != entries.size() ? known : find(0);
}

// The semaphore first: where the tool is killed between the two writes the agent counts down once more, and never below 0; the other
// way round it would stay up. A second entry for an address is the process's invention.
Status leave_others(target::Target& target, Block& block, const std::vector<target::Mapping>& maps,
                    const std::vector<Addr>& wanted) {
  std::set<std::uint64_t> seen;
  for (std::size_t i = 0; i < entries_of(block).size(); ++i) {
    const Semaphore entry = entries_of(block)[i];
    if (entry.address == 0) continue;
    const bool is_first = seen.insert(entry.address).second;
    if (is_first && has(wanted, entry.address)) continue;
    const bool is_counted = is_first && entry.is_up != 0 && is_mapped(maps, entry.address);
    if (is_counted) RETURN_IF_ERROR(count(target, Addr{entry.address}, -1));
    RETURN_IF_ERROR(block.set_semaphore(target, i, {}));
  }
  return ok();
}

}  // namespace

bool holds_semaphores(const target::Mapping& m) { return m.writable && !m.shared && m.is_file(); }

bool are_counted(target::Target& target, const Block& block, const std::vector<Addr>& wanted) {
  std::size_t found = 0;
  for (const Semaphore& entry : entries_of(block)) {
    if (entry.address == 0) continue;
    if (!has(wanted, entry.address) || is_to_go_up(target, entry)) return false;
    ++found;
  }
  return found == wanted.size();
}

Status count_semaphores(target::Target& target, Block& block, const std::vector<target::Mapping>& maps,
                        const std::vector<Addr>& wanted) {
  RETURN_IF_ERROR(leave_others(target, block, maps, wanted));
  for (const Addr at : wanted) {
    const std::size_t index = entry_for(block, at.value);
    if (index == kSemaphores) return Error{.code = Code::limit, .text = "more semaphores than a process can have"};
    const bool is_known = index < entries_of(block).size() && entries_of(block)[index].address == at.value;
    if (!is_known || is_to_go_up(target, entries_of(block)[index])) RETURN_IF_ERROR(count_up(target, block, index, at));
  }
  return ok();
}

}  // namespace uprobe::control
