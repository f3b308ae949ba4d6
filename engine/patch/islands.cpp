// SPDX-License-Identifier: MIT
#include "engine/patch/islands.h"

#include <sys/mman.h>

#include <algorithm>
#include <span>
#include <vector>

namespace uprobe::control {
namespace {

constexpr std::uint32_t kSmallest = 64 * 1024, kSpare = 16 * 1024;
constexpr std::uint64_t kReach = shared::kJumpReach - (1ull << 24);

bool within_reach(const shared::Island& island, Addr begin, Addr end) {
  const std::uint64_t low = std::min(island.base, begin.value), high = std::max(island.base + island.bytes, end.value);
  return high - low < kReach;
}

Result<Addr> make_island(target::Target& target, Block& block, Addr begin, Addr end, std::uint64_t bytes) {
  if (block.head().island_count == shared::kMaxIslands)
    return Error{.code = Code::limit, .text = "all pages for displaced instructions in this process are used"};
  auto maps = target.maps();
  if (!maps) return maps.error();
  constexpr std::uint64_t kLargest = 1U << 30;
  if (bytes > kLargest) return Error{.code = Code::limit, .text = "too many probes for one part of memory"};
  const auto size =
      static_cast<std::uint32_t>(std::max<std::uint64_t>(kSmallest, (bytes + kSpare + 4095) / 4096 * 4096));
  Error last{.code = Code::refused, .text = "no free address space within 2 GiB of the code"};
  for (const Addr place : target::free_places_near(*maps, begin, end, size)) {
    auto made = target::map_memory(target, place, size, PROT_READ | PROT_EXEC,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0, "displaced instructions");
    if (!made) {
      last = made.error();
      continue;
    }
    block.head().islands[block.head().island_count++] = {made->value, size, 0};
    return *made;
  }
  return last;
}

// Where the first one is to be; 0: there is no room.
Addr island_place(const std::vector<target::Mapping>& maps, Addr begin, Addr end) {
  const auto places = target::free_places_near(maps, begin, end, kSmallest);
  return places.empty() ? Addr{} : places.front();
}

}  // namespace

bool spare_rooms(target::Target& target, Block& block, std::span<const target::Mapping> codes) {
  const auto maps = target.maps();
  if (!maps) return false;
  std::uint32_t& count = block.head().island_count;
  const std::uint32_t before = count;
  std::vector<target::SystemCall> calls;
  for (const target::Mapping& m : codes) {
    if (count == shared::kMaxIslands || has_spare_room(block, m.begin, m.end)) continue;
    const Addr place = island_place(*maps, m.begin, m.end);
    if (!place) continue;
    block.head().islands[count++] = {place.value, kSmallest, 0};
    calls.push_back(
        target::map_call(place, kSmallest, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE));
  }
  count = before;
  if (calls.empty() || !target.system_calls(calls)) return false;
  for (const target::SystemCall& call : calls)
    if (const auto made = target::mapped_by(call, "displaced instructions"))
      block.head().islands[count++] = {made->value, kSmallest, 0};
  return count != before;
}

Result<Addr> island_room(target::Target& target, Block& block, Addr begin, Addr end, std::uint64_t bytes) {
  for (std::uint32_t i = 0; i < block.head().island_count; ++i) {
    shared::Island& island = block.head().islands[i];
    if (island.bytes - island.used < bytes || !within_reach(island, begin, end)) continue;
    const Addr room{island.base + island.used};
    island.used += static_cast<std::uint32_t>(bytes);
    return room;
  }
  auto made = make_island(target, block, begin, end, bytes);
  if (!made) return made.error();
  block.head().islands[block.head().island_count - 1].used = static_cast<std::uint32_t>(bytes);
  return *made;
}

bool has_spare_room(Block& block, Addr begin, Addr end) {
  const shared::Island *first = block.head().islands, *last = first + block.head().island_count;
  return std::any_of(first, last, [&](const shared::Island& island) {
    return island.bytes - island.used >= kSpare && within_reach(island, begin, end);
  });
}

Status spare_room(target::Target& target, Block& block, Addr begin, Addr end) {
  const auto made = make_island(target, block, begin, end, 0);
  return made ? ok() : Status(made.error());
}

void give_back(Block& block, Addr end, std::uint64_t bytes) {
  for (std::uint32_t i = 0; i < block.head().island_count; ++i) {
    shared::Island& island = block.head().islands[i];
    if (end.value == island.base + island.used && bytes <= island.used)
      island.used -= static_cast<std::uint32_t>(bytes);
  }
}

}  // namespace uprobe::control
