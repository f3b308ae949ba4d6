// SPDX-License-Identifier: MIT
#include "engine/patch/batched_patch.h"

#include <algorithm>
#include <utility>

namespace uprobe::control {

Status write_in_runs(target::Target& target, std::vector<TextPiece> pieces) {
  constexpr std::uint64_t kNear = 256, kLongest = 1 << 16;
  std::sort(pieces.begin(), pieces.end(), [](const TextPiece& a, const TextPiece& b) { return a.at < b.at; });
  std::vector<std::pair<Addr, std::vector<std::uint8_t>>> runs;
  for (std::size_t first = 0, next = 0; first < pieces.size(); first = next) {
    const Addr begin = pieces[first].at;
    Addr end = begin;
    for (next = first; next < pieces.size() && pieces[next].at - end < kNear && end - begin < kLongest; ++next)
      end = pieces[next].at + pieces[next].bytes.size();
    auto& run = runs.emplace_back(begin, end - begin).second;
    RETURN_IF_ERROR(target.read(begin, run.data(), run.size()));
    for (std::size_t i = first; i < next; ++i)
      std::copy(pieces[i].bytes.begin(), pieces[i].bytes.end(), &run[pieces[i].at - begin]);
  }
  for (const auto& [begin, run] : runs) RETURN_IF_ERROR(target.write(begin, run.data(), run.size()));
  return ok();
}

}  // namespace uprobe::control
