// SPDX-License-Identifier: MIT
#include "engine/output/histogram.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "engine/output/escape.h"

namespace uprobe::format {
namespace {

using program::HistogramModifier;
using program::HistogramPlan;
using program::HistogramWord;
using shared::HistogramSource;
using trace::HistogramEntry;

constexpr std::size_t kBarWidth = 20, kSymbolWidth = 45, kSymbolOffsetWidth = 55, kTextWidth = 50, kTaskWidth = 16;
constexpr std::size_t kFrameIndent = 9, kNumberWidth = 10;

std::string number(const char* form, std::uint64_t value) {
  char text[48];
  return {text,
          static_cast<std::size_t>(std::snprintf(text, sizeof text, form, static_cast<unsigned long long>(value)))};
}

std::string right(std::string text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string left(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// For each value, the index of the sum that it shows; hitcount's other forms have no sum of their own.
std::vector<std::size_t> sum_numbers(const HistogramPlan& plan) {
  std::vector<std::size_t> numbers;
  std::size_t next = 1;
  for (const HistogramWord& value : plan.values) numbers.push_back(value.is_hitcount ? 0 : next++);
  return numbers;
}

HistogramSource source_of(const HistogramWord& word) { return static_cast<HistogramSource>(word.field.source); }

class Printer {
 public:
  Printer(const HistogramPlan& plan, const trace::HistogramCopy& copy, const HistogramNames& names)
      : plan_(plan), copy_(copy), names_(names), sums_(sum_numbers(plan)) {}

  std::string print();

 private:
  struct Statistics {
    std::uint64_t total = 0, most = 0;
  };
  const std::uint64_t* words(const HistogramEntry& entry, const HistogramWord& key) const {
    return entry.key.data() + key.field.key_offset / 8;
  }
  std::string text_of(const HistogramEntry& entry, const HistogramWord& key) const;
  int compare(const HistogramEntry& a, const HistogramEntry& b, const HistogramWord& key) const;
  int compare(const HistogramEntry& a, const HistogramEntry& b, const program::HistogramSort& sort) const;
  bool comes_before(const HistogramEntry& a, const HistogramEntry& b) const;
  std::string symbol(std::uint64_t address, bool with_offset) const;
  std::string frames(const std::uint64_t* addresses) const;
  std::string key_text(const HistogramEntry& entry, const HistogramWord& key) const;
  std::string keys_text(const HistogramEntry& entry) const;
  std::string value_text(const HistogramEntry& entry, std::size_t value) const;
  std::string percentiles() const;
  std::string shown(std::string_view text) const;

  const HistogramPlan& plan_;
  const trace::HistogramCopy& copy_;
  const HistogramNames& names_;
  std::vector<std::size_t> sums_;
  std::vector<Statistics> statistics_;
};

std::string Printer::shown(std::string_view text) const {
  return names_.escape_control ? escaped(text) : std::string(text);
}

std::string Printer::text_of(const HistogramEntry& entry, const HistogramWord& key) const {
  const auto* text = reinterpret_cast<const char*>(words(entry, key));
  const bool is_name = source_of(key) == HistogramSource::task_name;
  return {text, ::strnlen(text, is_name ? shared::kNameBytes : shared::kHistogramText)};
}

int Printer::compare(const HistogramEntry& a, const HistogramEntry& b, const HistogramWord& key) const {
  const auto order = [](const auto& x, const auto& y) { return x == y ? 0 : x < y ? -1 : 1; };
  switch (source_of(key)) {
    case HistogramSource::stack:
      return 0;
    case HistogramSource::text:
    case HistogramSource::characters:
    case HistogramSource::task_name:
      return order(text_of(a, key), text_of(b, key));
    default:
      break;
  }
  const std::uint64_t x = *words(a, key), y = *words(b, key);
  return key.field.is_signed != 0 ? order(static_cast<std::int64_t>(x), static_cast<std::int64_t>(y)) : order(x, y);
}

int Printer::compare(const HistogramEntry& a, const HistogramEntry& b, const program::HistogramSort& sort) const {
  const bool is_value = sort.field < plan_.values.size();
  const std::size_t sum = is_value ? sums_[sort.field] : 0;
  const int order = !is_value                    ? compare(a, b, plan_.keys[sort.field - plan_.values.size()])
                    : a.sums[sum] == b.sums[sum] ? 0
                    : a.sums[sum] < b.sums[sum]  ? -1
                                                 : 1;
  return sort.descending ? -order : order;
}

bool Printer::comes_before(const HistogramEntry& a, const HistogramEntry& b) const {
  for (const program::HistogramSort& sort : plan_.sorts)
    if (const int order = compare(a, b, sort); order != 0) return order < 0;
  for (const HistogramWord& key : plan_.keys)
    if (const int order = compare(a, b, key); order != 0) return order < 0;
  return false;
}

std::string Printer::symbol(std::uint64_t address, bool with_offset) const {
  const CodePlace place = names_.symbols == nullptr ? CodePlace{} : names_.symbols->place_of(nullptr, address);
  if (place.name.empty()) return number("0x%llx", address);
  if (!with_offset) return shown(place.name);
  return shown(place.name) + number("+0x%llx", place.distance) + number("/0x%llx", place.size);
}

// A return address is after its call, which may be the last instruction of its function; the first address is the hit's own.
std::string Printer::frames(const std::uint64_t* addresses) const {
  std::string text;
  for (std::size_t i = 0; i < shared::kHistogramFrames && addresses[i] != 0; ++i)
    text += std::string(kFrameIndent, ' ') + frame_text(names_.symbols, nullptr, addresses[i], i != 0) + "\n";
  return text;
}

std::string Printer::key_text(const HistogramEntry& entry, const HistogramWord& key) const {
  const std::uint64_t value = *words(entry, key);
  const std::string name = key.name + ": ";
  switch (key.modifier) {
    case HistogramModifier::hex:
      return name + number("%llx", value);
    case HistogramModifier::symbol:
      return name + number("[%llx] ", value) + left(symbol(value, false), kSymbolWidth);
    case HistogramModifier::symbol_offset:
      return name + number("[%llx] ", value) + left(symbol(value, true), kSymbolOffsetWidth);
    case HistogramModifier::task:
      return name + left(shown(names_.task(static_cast<std::uint32_t>(value))), kTaskWidth) + number("[%10llu]", value);
    case HistogramModifier::log2:
      return name + number("~ 2^%-2llu", value);
    case HistogramModifier::log2_parts:
      return name + number("~ %llu-", value) + number("%llu", shared::log2_part_end(value, key.width));
    case HistogramModifier::buckets:
      return name + number("~ %llu-", value) + number("%llu", value + key.width - 1);
    default:
      break;
  }
  if (source_of(key) == HistogramSource::stack) return key.name + ":\n" + frames(words(entry, key));
  const bool is_number = source_of(key) == HistogramSource::number || source_of(key) == HistogramSource::cpu;
  return name + (is_number ? number("%10llu", value) : left(shown(text_of(entry, key)), kTextWidth));
}

std::string Printer::keys_text(const HistogramEntry& entry) const {
  std::string text = "{ ";
  bool has_lines = false;
  for (std::size_t i = 0; i < plan_.keys.size(); ++i) {
    text += (i == 0 ? "" : ", ") + key_text(entry, plan_.keys[i]);
    has_lines = has_lines || source_of(plan_.keys[i]) == HistogramSource::stack;
  }
  return text + (has_lines ? "}" : " }");
}

// A share in hundredths of a percent.
std::uint64_t share(std::uint64_t value, std::uint64_t whole) {
  constexpr std::uint64_t kWhole = 10'000;
  if (whole == 0) return 0;
  if (value < std::numeric_limits<std::uint64_t>::max() / kWhole) return value * kWhole / whole;
  return value / std::max<std::uint64_t>(whole / kWhole, 1);
}

std::string Printer::value_text(const HistogramEntry& entry, std::size_t value) const {
  const HistogramWord& word = plan_.values[value];
  const std::uint64_t sum = entry.sums[sums_[value]];
  if (word.modifier == HistogramModifier::percent) {
    const std::uint64_t part = share(sum, statistics_[value].total);
    return word.name + " (%): " + number("%3llu.", part / 100) + number("%02llu", part % 100);
  }
  if (word.modifier == HistogramModifier::graph) {
    const std::uint64_t bar = share(sum, statistics_[value].most) * kBarWidth / 10'000;
    return word.name + ": " + left(std::string(std::min<std::uint64_t>(bar, kBarWidth), '#'), kBarWidth);
  }
  const bool is_hex = word.modifier == HistogramModifier::hex;
  return word.name + ": " + right(number(is_hex ? "%llx" : "%llu", sum), kNumberWidth);
}

// Of the only key, where its buckets are fine enough to say something; the kernel's hist files have no such line. Negative numbers are
// in the buckets of very large ones, among which they have no order.
std::string Printer::percentiles() const {
  if (plan_.keys.size() != 1 || plan_.keys[0].modifier != HistogramModifier::log2_parts || copy_.entries.empty())
    return {};
  const HistogramWord& key = plan_.keys[0];
  std::vector<const HistogramEntry*> order;
  order.reserve(copy_.entries.size());
  for (const HistogramEntry& entry : copy_.entries) {
    if (key.field.is_signed != 0 && static_cast<std::int64_t>(*words(entry, key)) < 0) return {};
    order.push_back(&entry);
  }
  std::ranges::sort(order, [&](const auto* a, const auto* b) { return compare(*a, *b, key) < 0; });
  const std::uint64_t hits = copy_.hits();
  std::string text = "\n    Percentiles:";
  std::uint64_t below = order[0]->sums[0];  // with those of order[at]
  std::size_t at = 0;
  for (const unsigned percent : {50U, 90U, 99U, 100U}) {
    const std::uint64_t wanted = hits / 100 * percent + (hits % 100 * percent + 99) / 100;
    while (below < wanted && at + 1 < order.size()) below += order[++at]->sums[0];
    const std::uint64_t value = *words(*order[at], key);
    text += (percent == 100 ? " max ~ " : " p" + std::to_string(percent) + " ~ ") + number("%llu-", value) +
            number("%llu", shared::log2_part_end(value, key.width)) + (percent == 100 ? "" : ",");
  }
  return text;
}

std::string Printer::print() {
  std::vector<const HistogramEntry*> order;
  for (const HistogramEntry& entry : copy_.entries) order.push_back(&entry);
  std::ranges::stable_sort(order, [&](const auto* a, const auto* b) { return comes_before(*a, *b); });
  for (const std::size_t sum : sums_) {
    Statistics& of = statistics_.emplace_back();
    for (const HistogramEntry& entry : copy_.entries)
      of.total += entry.sums[sum], of.most = std::max(of.most, entry.sums[sum]);
  }
  std::string text = "# event histogram\n#\n# trigger info: " + plan_.text() + "\n#\n\n";
  for (const HistogramEntry* entry : order) {
    text += keys_text(*entry);
    for (std::size_t i = plan_.no_hitcount ? 1 : 0; i < plan_.values.size(); ++i)
      text += (i == 0 ? " " : "  ") + value_text(*entry, i);
    text += "\n";
  }
  return text + "\nTotals:\n    Hits: " + number("%llu", copy_.hits()) +
         "\n    Entries: " + number("%llu", copy_.entries.size()) + "\n    Dropped: " + number("%llu", copy_.dropped) +
         percentiles() + "\n";
}

}  // namespace

std::string print_histogram(const HistogramPlan& plan, const trace::HistogramCopy& copy, const HistogramNames& names) {
  return Printer(plan, copy, names).print();
}

}  // namespace uprobe::format
