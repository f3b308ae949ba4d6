// SPDX-License-Identifier: MIT
#include "engine/patch/batched_patch.h"

#include <algorithm>
#include <utility>

namespace uprobe::control {
namespace {

// Whether they are written at once. The bytes between them are copied, but no page that would not be written anyhow.
bool are_near(Addr end, Addr next) {
  constexpr std::uint64_t kNear = 256, kPage = 4096;
  if (next < end) return false;
  return next - end < kNear || (end.value - 1) / kPage == next.value / kPage;
}

}  // namespace

Status write_in_runs(target::Target& target, std::vector<TextPiece> pieces) {
  constexpr std::uint64_t kLongest = 1 << 16;
  std::sort(pieces.begin(), pieces.end(), [](const TextPiece& a, const TextPiece& b) { return a.at < b.at; });
  std::vector<std::pair<Addr, std::vector<std::uint8_t>>> runs;
  for (std::size_t first = 0, next = 0; first < pieces.size(); first = next) {
    const Addr begin = pieces[first].at;
    Addr end = begin + pieces[first].bytes.size();
    for (next = first + 1; next < pieces.size() && are_near(end, pieces[next].at) && end - begin < kLongest; ++next)
      end = pieces[next].at + pieces[next].bytes.size();
    auto& run = runs.emplace_back(begin, end - begin).second;
    if (next - first > 1) RETURN_IF_ERROR(target.read(begin, run.data(), run.size()));
    for (std::size_t i = first; i < next; ++i)
      std::copy(pieces[i].bytes.begin(), pieces[i].bytes.end(), &run[pieces[i].at - begin]);
  }
  for (const auto& [begin, run] : runs) RETURN_IF_ERROR(target.write(begin, run.data(), run.size()));
  return ok();
}

}  // namespace uprobe::control
