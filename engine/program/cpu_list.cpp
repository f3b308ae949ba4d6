// SPDX-License-Identifier: MIT
// Lists are regions between blanks and commas: "all", A, A-B; after each of the last two :USED/GROUP may follow.
#include "engine/program/cpu_list.h"

#include <bit>
#include <limits>

namespace uprobe::program {
namespace {

bool is_between(char c) { return c == ',' || c == ' ' || (c >= '\t' && c <= '\r') || c == '\xa0'; }

class ListReader {
 public:
  ListReader(std::string_view text, unsigned cpus) : text_(text), last_(cpus - 1) {}

  std::optional<CpuSet> read();

 private:
  bool take(char c) {
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool take_all();
  bool at_end() const { return text_.empty() || is_between(text_[0]); }
  std::optional<unsigned> number();
  bool region(CpuSet& set);
  bool range(unsigned& first, unsigned& last, bool& is_range);

  std::string_view text_;
  unsigned last_;
};

// In upper or lower case.
bool ListReader::take_all() {
  constexpr std::string_view kAll = "all";
  for (std::size_t i = 0; i < kAll.size(); ++i)
    if (i >= text_.size() || (text_[i] | 0x20) != kAll[i]) return false;
  text_.remove_prefix(kAll.size());
  return true;
}

// "N" is the last possible number.
std::optional<unsigned> ListReader::number() {
  if (take('N')) return last_;
  std::uint64_t value = 0;
  std::size_t digits = 0;
  for (; digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9'; ++digits) {
    value = value * 10 + static_cast<unsigned>(text_[digits] - '0');
    if (value > std::numeric_limits<unsigned>::max()) return std::nullopt;
  }
  text_.remove_prefix(digits);
  if (digits == 0) return std::nullopt;
  return static_cast<unsigned>(value);
}

bool ListReader::range(unsigned& first, unsigned& last, bool& is_range) {
  is_range = take_all();
  if (is_range) return first = 0, last = last_, true;
  const auto from = number();
  if (!from) return false;
  first = last = *from;
  if (at_end()) return true;
  is_range = take('-');
  const auto to = is_range ? number() : std::nullopt;
  if (!to) return false;
  last = *to;
  return true;
}

bool ListReader::region(CpuSet& set) {
  unsigned first = 0, last = 0;
  bool is_range = false;
  if (!range(first, last, is_range)) return false;
  unsigned used = 1, group = 1;
  if (!at_end()) {
    const auto some = take(':') ? number() : std::nullopt;
    const auto of = some && take('/') ? number() : std::nullopt;
    if (!of || *of == 0 || *some > *of) return false;
    used = *some, group = *of;
  }
  if (first > last || last > last_) return false;
  for (unsigned cpu = first; cpu <= last; ++cpu)
    if ((cpu - first) % group < used) set.add(cpu);
  return true;
}

std::optional<CpuSet> ListReader::read() {
  CpuSet set;
  for (;;) {
    while (!text_.empty() && is_between(text_[0])) text_.remove_prefix(1);
    if (text_.empty()) return set;
    if (!region(set)) return std::nullopt;
  }
}

}  // namespace

CpuSet CpuSet::all(unsigned cpus) {
  CpuSet set;
  for (unsigned cpu = 0; cpu < cpus; ++cpu) set.add(cpu);
  return set;
}

void CpuSet::add(unsigned cpu) {
  if (cpu / 8 >= bytes_.size()) bytes_.resize(cpu / 8 + 1, '\0');
  bytes_[cpu / 8] = static_cast<char>(static_cast<unsigned char>(bytes_[cpu / 8]) | 1u << (cpu & 7));
}

bool CpuSet::has(std::uint64_t cpu) const {
  return cpu / 8 < bytes_.size() && (static_cast<unsigned char>(bytes_[cpu / 8]) >> (cpu & 7) & 1) != 0;
}

unsigned CpuSet::count() const {
  int bits = 0;
  for (const char byte : bytes_) bits += std::popcount(static_cast<unsigned char>(byte));
  return static_cast<unsigned>(bits);
}

unsigned CpuSet::first() const {
  unsigned cpu = 0;
  while (!has(cpu)) ++cpu;
  return cpu;
}

std::optional<CpuSet> read_cpu_list(std::string_view text, unsigned cpus) { return ListReader(text, cpus).read(); }

}  // namespace uprobe::program
