// SPDX-License-Identifier: MIT
// Fuzzes the reading of sums of calls that a hostile target has written: numbers of chunks and cells have any contents. The copy
// has no more entries than there are buckets, and becomes a row.
//
// Input: the rows, then the cells, of exactly the laid out size: what is missing is 0.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/shared/histogram.h"
#include "engine/summary/call_sums.h"
#include "engine/summary/call_times.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;

namespace {

constexpr std::uint32_t kRows = 3, kChunks = 4;

void require(bool condition) {
  if (!condition) std::abort();
}

template <class T>
std::vector<T> take(const std::uint8_t*& data, std::size_t& size, std::size_t count) {
  std::vector<T> made(count);
  const std::size_t bytes = std::min(size, sizeof(T) * count);
  if (bytes != 0) std::memcpy(made.data(), data, bytes);
  data += bytes, size -= bytes;
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto rows = take<shared::SumRow>(data, size, kRows);
  const auto cells = take<shared::SumCell>(data, size, std::size_t{kChunks} * shared::kSumParts);
  summary::CallSums sums;
  summary::add_call_sums(
      {.first = rows.data(), .row_count = kRows, .stride = 1, .chunks = cells.data(), .chunk_count = kChunks}, sums);
  require(sums.times.size() <= std::size_t{shared::kSumGroups} * shared::kSumParts);
  for (const auto& [latency, sum] : sums.times) require(latency == shared::log2_part(latency, shared::kSumBits));
  const CallSummary row = summary::summarize(sums, {.began = sums.began, .unfollowed = 1, .untimed = 2});
  // A call that returns twice, as fork's does, makes more returns than calls: then no call is said not to have returned.
  const std::uint64_t ended = std::min(row.calls, row.returns);
  require(row.calls == ended + row.abandoned + row.unfollowed);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<shared::SumRow> rows(kRows);
  std::vector<shared::SumCell> cells(std::size_t{kChunks} * shared::kSumParts);
  for (std::uint32_t group = 0; group < shared::kSumGroups; ++group) rows[group % kRows].chunks[group] = group % 6;
  for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = {.count = i, .total = {i, 2 * i}, .self = {i / 2, i}};
  return {std::string(reinterpret_cast<const char*>(rows.data()), sizeof(shared::SumRow) * rows.size()) +
          std::string(reinterpret_cast<const char*>(cells.data()), sizeof(shared::SumCell) * cells.size())};
}
