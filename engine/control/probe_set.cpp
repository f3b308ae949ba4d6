#include "engine/control/probe_set.h"

#include <algorithm>

namespace uprobe::control {

void ProbeSet::add(plan::Site site, std::uint16_t event) {
  auto file = std::find_if(files_.begin(), files_.end(), [&](const FilePoints& f) { return f.file == site.file; });
  if (file == files_.end()) file = files_.insert(files_.end(), FilePoints{.file = site.file, .points = {}, .ifuncs = {}});
  auto& points = site.is_ifunc ? file->ifuncs : file->points;
  const auto place = std::lower_bound(points.begin(), points.end(), site.offset,
                                      [](const PlannedPoint& p, std::uint64_t offset) { return p.site.offset < offset; });
  ++size_;
  if (place != points.end() && place->site.offset == site.offset) {
    place->events.insert(place->events.begin(), event);
    return;
  }
  points.insert(place, PlannedPoint{.site = std::move(site), .events = {event}});
}

}  // namespace uprobe::control
