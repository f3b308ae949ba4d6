#include "engine/plan/boundary.h"

#include <algorithm>

#include "arch/x86/code/relocate.h"

namespace uprobe::plan {
namespace {

constexpr std::uint64_t kLongestSweep = 1u << 20;

// The code from link-time address `from` to the end of its segment's file bytes.
std::span<const std::uint8_t> code_at(const elf::ElfFile& file, std::uint64_t from) {
  for (const elf::Segment& s : file.segments()) {
    if (!s.executable || from < s.address || from - s.address >= s.file_bytes) continue;
    const std::uint64_t skip = from - s.address;
    const auto bytes = file.bytes();
    if (s.offset + skip >= bytes.size()) return {};
    return bytes.subspan(s.offset + skip, std::min(s.file_bytes - skip, bytes.size() - s.offset - skip));
  }
  return {};
}

// The best known start of code at or before the address: of the function that contains it, else of the one before.
std::optional<std::uint64_t> start_before(const elf::ElfFile& file, std::uint64_t address) {
  if (const auto range = file.range_at(address)) return range->begin;
  std::optional<std::uint64_t> best;
  if (file.entry() <= address) best = file.entry();
  const auto ranges = file.function_ranges();
  auto next = std::upper_bound(ranges.begin(), ranges.end(), address,
                               [](std::uint64_t a, const elf::Range& r) { return a < r.begin; });
  if (next != ranges.begin()) best = std::max(best.value_or(0), (next - 1)->begin);
  const auto functions = file.functions();
  auto symbol = std::upper_bound(functions.begin(), functions.end(), address,
                                 [](std::uint64_t a, const elf::Symbol& s) { return a < s.address; });
  if (symbol != functions.begin()) best = std::max(best.value_or(0), (symbol - 1)->address);
  return best;
}

}  // namespace

Boundary find_boundary(const elf::ElfFile& file, std::uint64_t address) {
  const auto start = start_before(file, address);
  if (!start || address - *start > kLongestSweep) return {};
  auto code = code_at(file, *start);
  std::uint64_t at = *start;
  while (at < address) {
    const auto insn = x86::decode(code, Addr{at});
    if (!insn) return {};
    if (at + insn->length > address)
      return {.known = true, .is_start = false, .before = at, .after = at + insn->length};
    at += insn->length;
    code = code.subspan(insn->length);
  }
  return {.known = true, .is_start = true, .before = at, .after = at};
}

}  // namespace uprobe::plan
