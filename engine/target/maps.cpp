// SPDX-License-Identifier: MIT
#include "engine/target/maps.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <cstdio>

namespace uprobe::target {
namespace {

// Takes a number in `base` and the one character after it.
bool cut_number(std::string_view& text, int base, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end == text.data() + text.size()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return true;
}

// "begin-end rwxp offset major:minor inode   path"
bool parse_line(std::string_view line, Mapping& m) {
  std::uint64_t begin = 0, end = 0, major = 0, minor = 0;
  if (!cut_number(line, 16, begin) || !cut_number(line, 16, end) || line.size() < 5) return false;
  m.begin = Addr{begin}, m.end = Addr{end};
  m.readable = line[0] == 'r', m.writable = line[1] == 'w', m.executable = line[2] == 'x', m.shared = line[3] == 's';
  line.remove_prefix(5);
  if (!cut_number(line, 16, m.offset) || !cut_number(line, 16, major) || !cut_number(line, 16, minor)) return false;
  m.device = major << 32 | minor;
  const auto [at, error] = std::from_chars(line.data(), line.data() + line.size(), m.inode);
  if (error != std::errc()) return false;
  line.remove_prefix(static_cast<std::size_t>(at - line.data()));
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  m.path = line;
  return true;
}

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLowest = 0x10000;          // vm.mmap_min_addr
constexpr std::uint64_t kHighest = 0x7ffffffff000;  // TASK_SIZE of 47-bit address spaces
constexpr std::uint64_t kReach = (1ull << 31) - (1ull << 24);
constexpr std::uint64_t kBreakRoom = 1ull << 30;  // left free above data that a break may grow from

struct Gap {
  std::uint64_t begin, end;
};

std::vector<Gap> gaps_of(const std::vector<Mapping>& maps) {
  std::vector<Gap> gaps;
  std::uint64_t at = kLowest;
  for (const Mapping& m : maps) {
    if (m.begin.value >= kHighest) break;
    std::uint64_t end = m.begin.value;
    if (m.path == "[stack]") end = at;  // the stack grows down into it
    if (end > at) gaps.push_back({at, end});
    at = std::max(at, m.end.value);
    if (m.path == "[heap]" && at < kHighest) at += kBreakRoom;
  }
  return gaps;
}

}  // namespace

const Mapping* mapping_at(const std::vector<Mapping>& maps, Addr address) {
  const auto next =
      std::upper_bound(maps.begin(), maps.end(), address, [](Addr a, const Mapping& m) { return a < m.begin; });
  return next != maps.begin() && address < (next - 1)->end ? &*(next - 1) : nullptr;
}

std::vector<Mapping> parse_maps(std::string_view text) {
  std::vector<Mapping> maps;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    Mapping m;
    if (parse_line(text.substr(0, end), m)) maps.push_back(std::move(m));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return maps;
}

std::vector<Addr> free_places_near(const std::vector<Mapping>& maps, Addr begin, Addr end, std::uint64_t bytes) {
  const std::uint64_t size = (bytes + kPage - 1) / kPage * kPage;
  std::vector<Addr> below, above;
  for (const Gap& gap : gaps_of(maps)) {
    if (gap.end - gap.begin < size + 2 * kPage) continue;
    if (gap.end <= begin.value) {
      const std::uint64_t place = gap.end - size - kPage;
      if (end.value - place < kReach) below.push_back(Addr{place});
      continue;
    }
    if (gap.begin < end.value) continue;
    // Above: first with room for a break that may not have been mapped yet, then right after.
    const std::uint64_t far = (end.value + kBreakRoom) / kPage * kPage;
    if (far > gap.begin && far + size + kPage < gap.end && far + size - begin.value < kReach)
      above.push_back(Addr{far});
    if (gap.begin + kPage + size - begin.value < kReach) above.push_back(Addr{gap.begin + kPage});
  }
  std::reverse(below.begin(), below.end());
  below.insert(below.end(), above.begin(), above.end());
  return below;
}

std::optional<Mapping> mapping_beginning_at(std::string_view text, Addr begin) {
  std::array<char, 32> written{};
  std::snprintf(written.data(), written.size(), "\n%08" PRIx64 "-", begin.value);
  const std::string_view line_before = written.data(), line = line_before.substr(1);
  if (!text.starts_with(line)) {  // the first one has no line before it
    const std::size_t end = text.find(line_before);
    if (end == std::string_view::npos) return std::nullopt;
    text.remove_prefix(end + 1);
  }
  const auto found = parse_maps(text.substr(0, text.find('\n')));
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

}  // namespace uprobe::target
