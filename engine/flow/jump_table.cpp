// SPDX-License-Identifier: MIT
#include "engine/flow/jump_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/flow/sparse_set.h"

namespace uprobe::plan {
namespace {

using arch::Leads;
using arch::RegisterValue;
using Kind = RegisterValue::Kind;
using Origin = FunctionCode::Origin;
using Targets = std::vector<std::uint64_t>;

constexpr std::size_t kMostSteps = 4000;       // of following a register backwards
constexpr std::size_t kMostEntries = 1 << 16;  // of a table

bool is_constant(const Origin& origin) { return origin.value.kind == Kind::constant; }
bool is_entry(const Origin& origin) {
  return origin.value.kind == Kind::table_entry || origin.value.kind == Kind::fixed_entry;
}

bool all(const std::vector<Origin>& origins, bool (*is)(const Origin&)) {
  return !origins.empty() && std::all_of(origins.begin(), origins.end(), is);
}

// The value if all origins are one and the same constant.
std::optional<std::uint64_t> one_constant(const std::vector<Origin>& origins) {
  if (!all(origins, is_constant)) return std::nullopt;
  const std::uint64_t first = origins.front().value.constant;
  const bool same = std::all_of(origins.begin(), origins.end(),
                                [first](const Origin& origin) { return origin.value.constant == first; });
  return same ? std::optional(first) : std::nullopt;
}

// Follows registers backwards.
class OriginWalk {
 public:
  struct Place {
    unsigned reg = 0;
    std::uint64_t address = 0;  // of the instruction that the register is looked at before
  };
  OriginWalk(unsigned reg, std::uint64_t address) : todo_{{reg, address}} {}

  std::optional<Place> next() {
    if (todo_.empty()) return std::nullopt;
    const Place place = todo_.back();
    todo_.pop_back();
    return place;
  }
  void add(const Origin& origin) { found_.push_back(origin); }

  // To before the instruction at `from`, which may be where the register got its value.
  void step(unsigned reg, std::uint64_t from, std::span<const std::uint8_t> bytes) {
    const RegisterValue value = arch::value_after(bytes, Addr{from}, reg);
    const bool maybe = value.kind == Kind::same_or_copy || value.kind == Kind::same_or_pointer;
    if (value.kind == Kind::same || maybe) want(reg, from);
    if (value.kind == Kind::copy || value.kind == Kind::same_or_copy) want(value.a, from);
    if (value.kind == Kind::same_or_pointer) add({.value = {.kind = Kind::pointer}, .address = from});
    const bool is_followed = value.kind == Kind::same || value.kind == Kind::copy || maybe;
    if (!is_followed) add({.value = value, .address = from});
  }

  std::size_t places() const { return seen_.size(); }
  std::vector<Origin> take() { return std::move(found_); }

 private:
  void want(unsigned reg, std::uint64_t address) {
    constexpr unsigned kRegisterBits = 4;
    if (seen_.add(address << kRegisterBits | reg)) todo_.push_back({reg, address});
  }

  SparseSet seen_;  // places, by one number each
  std::vector<Place> todo_;
  std::vector<Origin> found_;
};

class Resolver {
 public:
  Resolver(const FlowMap& map, const FunctionCode& code) : map_(map), code_(code) {}

  JumpTargets run(std::uint64_t jump) {
    const auto reg = arch::jump_register(code_.bytes_at(jump));
    result_.is_known = reg && add_all(code_.origins(*reg, jump));
    return std::move(result_);
  }

 private:
  bool add_all(const std::vector<Origin>& origins) {
    return !origins.empty() &&
           std::all_of(origins.begin(), origins.end(), [this](const Origin& origin) { return add(origin); });
  }

  bool add(const Origin& origin) {
    switch (origin.value.kind) {
      case Kind::constant:
        result_.targets.push_back(origin.value.constant);
        return map_.code_at(origin.value.constant) != nullptr;
      case Kind::pointer:
        return result_.has_pointers = true;
      case Kind::sum:
        note_blocks(origin, origin.value.a, origin.value.b), note_blocks(origin, origin.value.b, origin.value.a);
        return add_sum(origin, origin.value.a, origin.value.b) || add_sum(origin, origin.value.b, origin.value.a);
      default:
        return false;
    }
  }

  // Whether the sum is that of an entry and what the entries are distances from: the table itself, or a label.
  bool add_sum(const Origin& sum, unsigned entry, unsigned base) {
    const auto loads = code_.origins(entry, sum.address);
    if (!all(loads, is_entry)) return false;
    const auto from = one_constant(code_.origins(base, sum.address));
    return std::all_of(loads.begin(), loads.end(), [&](const Origin& load) {
      if (load.value.kind == Kind::fixed_entry) return from && add_entry(*from, load.value.constant);
      const auto table = one_constant(code_.origins(load.value.a, load.address));
      return table && from ? add_table(*table, *from) : add_tables(load, sum, base);
    });
  }

  // A distance that comes from no table: the jump leads into a row of blocks of code, all of one size.
  void note_blocks(const Origin& sum, unsigned base, unsigned distance) {
    const auto first = one_constant(code_.origins(base, sum.address));
    const auto is_computed = [](const Origin& origin) { return origin.value.kind == Kind::other; };
    if (!first || !code_.range().holds(*first)) return;
    if (all(code_.origins(distance, sum.address), is_computed)) result_.blocks.push_back(*first);
  }

  bool add_table(std::uint64_t table, std::uint64_t from) {
    const Targets targets = read_jump_table(map_, table, from);
    if (!code_.spend(targets.size())) return false;
    result_.targets.insert(result_.targets.end(), targets.begin(), targets.end());
    return !targets.empty();
  }

  bool add_entry(std::uint64_t from, std::uint64_t entry) {
    const Targets targets = read_jump_table(map_, entry, from);
    if (targets.empty()) return false;
    result_.targets.push_back(targets.front());
    return true;
  }

  // The register that the load and the sum have in common comes from elsewhere (a loop keeps it, the stack did): it is one
  // of the tables whose address the function makes. No caller passes a switch its table.
  bool add_tables(const Origin& load, const Origin& sum, unsigned base) {
    if (load.value.a != base || !code_.keeps(base, load.address, sum.address)) return false;
    const auto origins = code_.origins(base, load.address);
    Targets tables;
    if (all(origins, is_constant))
      for (const Origin& origin : origins) tables.push_back(origin.value.constant);
    else
      tables = all_tables();
    return !tables.empty() &&
           std::all_of(tables.begin(), tables.end(), [this](std::uint64_t table) { return add_table(table, table); });
  }

  Targets all_tables() const {
    Targets tables;
    for (const std::uint64_t address : code_.addresses_made()) {
      const Targets targets = read_jump_table(map_, address, address);
      if (!code_.spend(targets.size())) return {};
      const auto is_inside = [this](std::uint64_t a) { return a >= code_.range().begin && a < code_.range().end; };
      if (std::any_of(targets.begin(), targets.end(), is_inside)) tables.push_back(address);
    }
    return tables;
  }

  const FlowMap& map_;
  const FunctionCode& code_;
  JumpTargets result_;
};

}  // namespace

FunctionCode::Ways FunctionCode::ways_to(std::uint64_t address) const {
  Ways ways;
  ways.is_entry = address == range_.begin;
  ways.is_known = ways.is_entry || !(segment_.named.test(address) || segment_.entered.test(address));
  const auto before = segment_.starts.last(range_.begin, address);
  if (before && !segment_.stops.test(*before)) ways.before = before;
  if (!segment_.jumped.test(address)) return ways;
  const auto first = std::lower_bound(seen_.jumps.begin(), seen_.jumps.end(), std::pair(address, std::uint64_t{0}));
  auto last = first;
  while (last != seen_.jumps.end() && last->first == address) ++last;
  ways.jumps = {first, last};
  return ways;
}

std::vector<Origin> FunctionCode::origins(unsigned reg, std::uint64_t address) const {
  OriginWalk walk(reg, address);
  while (const auto place = walk.next()) {
    const Ways ways = ways_to(place->address);
    if (!ways.is_known || walk.places() > kMostSteps || !spend(1 + ways.count())) return {Origin{}};
    if (ways.is_entry) walk.add({.value = {.kind = Kind::pointer}, .address = place->address});
    if (ways.before) walk.step(place->reg, *ways.before, bytes_at(*ways.before));
    for (const auto& jump : ways.jumps) walk.step(place->reg, jump.second, bytes_at(jump.second));
  }
  return walk.take();
}

bool FunctionCode::spend(std::size_t steps) const {
  steps_ -= std::min(steps_, steps);
  return steps_ != 0;
}

bool FunctionCode::keeps(unsigned reg, std::uint64_t from, std::uint64_t to) const {
  if (from >= to) return false;
  for (auto at = segment_.starts.next(from, to); at; at = segment_.starts.next(*at + 1, to)) {
    if (arch::value_after(bytes_at(*at), Addr{*at}, reg).kind != Kind::same || segment_.stops.test(*at)) return false;
    if (*at != from && segment_.is_arrival(*at)) return false;
  }
  return !segment_.is_arrival(to);
}

std::vector<std::uint64_t> read_jump_table(const FlowMap& map, std::uint64_t table, std::uint64_t from) {
  const SegmentMap* segment = map.at(table);
  if (segment == nullptr || segment->segment.writable) return {};
  Targets targets;
  std::uint64_t first = UINT64_MAX;  // of the targets after the table, which may stand in text: it ends before that
  for (std::uint64_t at = table; segment->holds(at) && segment->holds(at + 3) && at < first; at += 4) {
    if (at != table && segment->named.next(at, at + 4)) break;
    std::int32_t distance = 0;
    std::memcpy(&distance, segment->bytes.data() + (at - segment->segment.address), sizeof distance);
    const std::uint64_t target = from + static_cast<std::uint64_t>(std::int64_t{distance});
    const SegmentMap* code = map.code_at(target);
    if (code == nullptr) break;
    if (targets.size() == kMostEntries) return {};
    if (target > table) first = std::min(first, target);
    targets.push_back(target);
  }
  return targets;
}

JumpTargets targets_of_jump(const FlowMap& map, const FunctionCode& code, std::uint64_t jump) {
  return Resolver(map, code).run(jump);
}

}  // namespace uprobe::plan
