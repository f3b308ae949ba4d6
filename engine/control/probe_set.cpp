#include "engine/control/probe_set.h"

#include <algorithm>

namespace uprobe::control {

PlannedPoint& ProbeSet::point_for(plan::Site site) {
  auto file = std::find_if(files_.begin(), files_.end(),
                           [&](const FilePoints& f) { return f.file->identity() == site.file->identity(); });
  if (file == files_.end())
    file = files_.insert(files_.end(), FilePoints{.file = site.file, .points = {}, .ifuncs = {}});
  auto& points = site.is_ifunc ? file->ifuncs : file->points;
  const auto place =
      std::lower_bound(points.begin(), points.end(), site.offset,
                       [](const PlannedPoint& p, std::uint64_t offset) { return p.site.offset < offset; });
  if (place != points.end() && place->site.offset == site.offset) return *place;
  return *points.insert(place, PlannedPoint{.site = std::move(site), .events = {}});
}

void ProbeSet::add(plan::Site site, std::uint16_t event) {
  auto& events = point_for(std::move(site)).events;
  events.insert(events.begin(), event);
  ++size_;
}

void ProbeSet::add_hook(plan::Site site) {
  point_for(std::move(site)).role = shared::PointRole::library_hook;
  ++size_;
}

}  // namespace uprobe::control
