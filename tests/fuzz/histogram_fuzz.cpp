// SPDX-License-Identifier: MIT
// Fuzzes the reading of a histogram that a hostile target has written: slots, entries, sums and keys have any contents. The
// copy is no larger than the layout, each of its keys is unique, and it prints.
//
// Input: a byte that chooses the histogram, the count of dropped hits, then slots, then entries, repeated as often as needed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "engine/output/histogram.h"
#include "engine/program/compile.h"
#include "engine/program/trigger.h"
#include "engine/spec/parse.h"
#include "engine/trace/histogram_copy.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

program::HistogramPlan plan_of(const std::string& text) {
  static const auto layout =
      program::compile(
          *spec::parse_definition("p:g/e /b/x:0x10 n=%di:s32 q=%si:u64 s=+0(%dx):string", {.file_check = nullptr}))
          .take()
          .layout;
  const auto trigger = program::parse_trigger(text);
  return program::parse_histogram(text, trigger->attributes_at, trigger->attributes_end, layout).take();
}

const std::vector<program::HistogramPlan>& plans() {
  static const std::vector<program::HistogramPlan> all = {
      plan_of("hist:keys=n,s:vals=q,hitcount.percent:sort=q.descending,n:size=128"),
      plan_of("hist:keys=common_pid.execname,common_cpu:vals=q.graph,n:sort=hitcount:size=128"),
      plan_of("hist:keys=q.buckets=16,common_stacktrace:size=128"),
      plan_of("hist:keys=q.log2,q.sym-offset:vals=n.hex:nohitcount:size=128")};
  return all;
}

// The words of a target, of exactly the laid out size: the input over and over.
std::vector<std::uint64_t> words_of(const std::uint8_t*& data, std::size_t& size, std::size_t count) {
  std::vector<std::uint64_t> words(count);
  const std::size_t bytes = std::min(size, 8 * count);
  if (bytes == 0) return words;
  std::memcpy(words.data(), data, bytes);
  for (std::size_t i = (bytes + 7) / 8; i < count; ++i) words[i] = words[i - (bytes + 7) / 8];
  data += bytes / 2, size -= bytes / 2;
  return words;
}

void check(const trace::HistogramCopy& copy, const trace::HistogramMemory& memory) {
  require(copy.entries.size() <= memory.entry_count);
  std::set<std::vector<std::uint64_t>> keys;
  for (const trace::HistogramEntry& entry : copy.entries) {
    require(entry.key.size() == memory.key_bytes / 8 && entry.sums.size() == memory.sum_count);
    require(keys.insert(entry.key).second);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 9) return 0;
  const program::HistogramPlan& plan = plans()[data[0] % plans().size()];
  std::uint64_t dropped = 0;
  std::memcpy(&dropped, data + 1, sizeof dropped);
  data += 9, size -= 9;
  trace::HistogramMemory memory{.dropped = &dropped, .entry_count = 1u << plan.bits, .key_bytes = plan.key_bytes};
  memory.slot_count = 2 * memory.entry_count;
  const auto values = std::ranges::count(plan.values, false, &program::HistogramWord::is_hitcount);
  memory.sum_count = shared::histogram_sums(static_cast<std::uint32_t>(values));
  const auto slots = words_of(data, size, memory.slot_count);
  const auto entries = words_of(data, size, memory.entry_count * (memory.sum_count + memory.key_bytes / 8));
  memory.slots = slots.data(), memory.entries = reinterpret_cast<const std::uint8_t*>(entries.data());
  const trace::HistogramCopy copy = trace::copy_histogram(memory);
  check(copy, memory);
  const format::HistogramNames names{.task = [](std::uint32_t tid) { return "t" + std::to_string(tid); }};
  require(format::print_histogram(plan, copy, names).size() < 1u << 20);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (char which = 0; which < static_cast<char>(plans().size()); ++which) {
    std::vector<std::uint64_t> words = {3};  // dropped
    for (std::uint64_t slot = 0; slot < 24; ++slot) words.push_back(slot << 32 | (shared::kSlotEntry + slot));
    for (std::uint64_t word = 0; word < 64; ++word) words.push_back(word % 5 == 4 ? 0x6100626364656667 : word + 1);
    seeds.push_back(std::string(1, which) + std::string(reinterpret_cast<const char*>(words.data()), 8 * words.size()));
  }
  return seeds;
}
