// SPDX-License-Identifier: MIT
#include "engine/patch/batched_patch.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace uprobe::control {
namespace {

// Whether they are written at once. The bytes between them are copied, but no page that would not be written anyhow.
bool are_near(Addr end, Addr next) {
  constexpr std::uint64_t kNear = 256, kPage = 4096;
  if (next < end) return false;
  return next - end < kNear || (end.value - 1) / kPage == next.value / kPage;
}

struct Run {
  Addr begin;
  std::vector<std::uint8_t> bytes;
};

// `pieces`: in ascending order.
Result<std::vector<Run>> runs_of(target::Target& target, std::span<const TextPiece> pieces) {
  constexpr std::uint64_t kLongest = 1 << 16;
  std::vector<Run> runs;
  std::vector<std::size_t> firsts;  // of each run, among the pieces
  for (std::size_t first = 0, next = 0; first < pieces.size(); first = next) {
    const Addr begin = pieces[first].at;
    Addr end = begin + pieces[first].bytes.size();
    for (next = first + 1; next < pieces.size() && are_near(end, pieces[next].at) && end - begin < kLongest; ++next)
      end = pieces[next].at + pieces[next].bytes.size();
    runs.push_back({begin, std::vector<std::uint8_t>(end - begin)});
    firsts.push_back(first);
  }
  firsts.push_back(pieces.size());
  std::vector<target::ReadPiece> between;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (firsts[i + 1] - firsts[i] > 1) between.push_back({runs[i].begin, runs[i].bytes});
  RETURN_IF_ERROR(target.read_all(between));
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const TextPiece& piece : pieces.subspan(firsts[i], firsts[i + 1] - firsts[i]))
      std::copy(piece.bytes.begin(), piece.bytes.end(), &runs[i].bytes[piece.at - runs[i].begin]);
  return runs;
}

bool is_breakpoint(const TextPiece& piece) { return piece.bytes.size() == 1; }

Status write_breakpoints(target::Target& target, std::span<const TextPiece> pieces) {
  const auto runs = runs_of(target, pieces);
  if (!runs) return runs.error();
  std::vector<target::MemoryPiece> all;
  all.reserve(runs->size());
  for (const Run& run : *runs) all.push_back({run.begin, run.bytes});
  return target.write_all(all);
}

}  // namespace

// A thread that blocks SIGTRAP, at a place where the agent would see to it and that has no breakpoint, dies at the next one. So of
// breakpoints there are none, or all, even where the tool is killed in between. A jump needs no signal.
Status write_in_runs(target::Target& target, std::vector<TextPiece> pieces) {
  std::ranges::sort(pieces, {}, &TextPiece::at);
  const auto breakpoints =
      std::stable_partition(pieces.begin(), pieces.end(), [](const TextPiece& piece) { return !is_breakpoint(piece); });
  const std::span<const TextPiece> others(pieces.begin(), breakpoints);
  const auto runs = runs_of(target, others);
  if (!runs) return runs.error();
  for (const Run& run : *runs) RETURN_IF_ERROR(target.write(run.begin, run.bytes.data(), run.bytes.size()));
  return breakpoints == pieces.end() ? ok() : write_breakpoints(target, {breakpoints, pieces.end()});
}

}  // namespace uprobe::control
