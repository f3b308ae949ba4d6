// SPDX-License-Identifier: MIT
#include "engine/arm/file_jumps.h"

#include <algorithm>

namespace uprobe::control {

plan::FileJumps& JumpPlanner::of(const FilePoints& file) {
  Planned& planned = planned_[file.file.get()];
  if (planned.jumps && planned.edition == file.edition) return *planned.jumps;
  std::vector<std::uint64_t> wanted, others, lesser;
  for (const PlannedPoint& point : file.points)
    (point.role == shared::PointRole::probe && !changes_program(point) ? wanted : others).push_back(point.site.address);
  for (const PlannedPoint& point : own_.in(file.file).points)
    (point.role == shared::PointRole::open_call    ? wanted
     : point.role == shared::PointRole::quick_call ? lesser
                                                   : others)
        .push_back(point.site.address);
  std::sort(others.begin(), others.end());
  std::erase_if(wanted, [&](std::uint64_t a) { return std::binary_search(others.begin(), others.end(), a); });
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::erase_if(lesser, [&](std::uint64_t a) { return std::binary_search(wanted.begin(), wanted.end(), a); });
  planned = {file.edition, std::make_unique<plan::FileJumps>(flows_.of(file.file), std::move(wanted), others, lesser)};
  return *planned.jumps;
}

}  // namespace uprobe::control
