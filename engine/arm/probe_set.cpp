// SPDX-License-Identifier: MIT
#include "engine/arm/probe_set.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "engine/process/mapped_file.h"
#include "engine/proxy/foreign.h"
#include "engine/proxy/memory.h"

namespace uprobe::control {

namespace {

FileVersion version_in(const struct stat& status) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  return {{status.st_dev, status.st_ino}, status.st_size, status.st_mtim.tv_sec * kSecond + status.st_mtim.tv_nsec};
}

}  // namespace

std::optional<FileVersion> version_of(const std::string& path) {
  const auto status = proxy::status_of({}, path);
  return status ? std::optional(version_in(*status)) : std::nullopt;
}

std::optional<FileVersion> mapped_version(pid_t pid, const target::Mapping& m) {
  const auto user = proxy::Foreign(pid).user();
  for (const std::string& name : names_of(pid, m))
    if (const auto status = proxy::status_of(user, name)) return version_in(*status);
  return std::nullopt;
}

const std::optional<FileVersion>& MappedVersions::of(const target::Mapping& m) {
  const auto [known, is_new] = known_.try_emplace(File{m.device, m.inode, m.path});
  if (is_new) known->second = mapped_version(pid_, m);
  return known->second;
}

bool changes_program(const PlannedPoint& point) {
  return std::any_of(point.consumers.begin(), point.consumers.end(), std::mem_fn(&PlannedConsumer::changes_program));
}

bool has_probes(const FilePoints& file) {
  const auto is_probe = [](const PlannedPoint& point) { return point.role == shared::PointRole::probe; };
  return !file.ifuncs.empty() || std::any_of(file.points.begin(), file.points.end(), is_probe);
}

bool has_changed(const FilePoints& file, const FileVersion& now) { return file.version && *file.version != now; }

PlannedPoint& ProbeSet::point_for(plan::Site site) {
  auto file = std::find_if(files_.begin(), files_.end(),
                           [&](const FilePoints& f) { return f.file->identity() == site.file->identity(); });
  if (file == files_.end()) {
    file = files_.insert(files_.end(), FilePoints{.file = site.file, .points = {}, .ifuncs = {}});
    const auto version = version_of(site.file->path());
    if (version && version->identity == site.file->identity()) file->version = version;
  }
  auto& points = site.is_ifunc ? file->ifuncs : file->points;
  const auto place =
      std::lower_bound(points.begin(), points.end(), site.offset,
                       [](const PlannedPoint& p, std::uint64_t offset) { return p.site.offset < offset; });
  if (place != points.end() && place->site.offset == site.offset) return *place;
  ++file->edition;
  return *points.insert(place, PlannedPoint{.site = std::move(site), .consumers = {}});
}

void ProbeSet::add(plan::Site site, const PlannedConsumer& consumer) {
  auto& consumers = point_for(std::move(site)).consumers;
  consumers.insert(consumers.begin(), consumer);
  wants_stubs_ = wants_stubs_ || consumer.kind == shared::ConsumerKind::stub;
  ++size_;
}

Result<std::uint16_t> ProbeSet::number_of(const NamedObject& object) {
  const auto known = std::find_if(objects_.begin(), objects_.end(), [&](const NamedObject& other) {
    return other.file->identity() == object.file->identity() && other.version == object.version &&
           other.exported == object.exported && other.exported_address == object.exported_address;
  });
  if (known != objects_.end()) return static_cast<std::uint16_t>(known - objects_.begin());
  if (objects_.size() == shared::kMappedObjects)
    return Error{.code = Code::limit, .text = "@OBJECT:SYMBOL names too many objects in one session"};
  objects_.push_back(object);
  return static_cast<std::uint16_t>(objects_.size() - 1);
}

void ProbeSet::add_semaphore(const std::shared_ptr<const elf::ElfFile>& file, std::uint64_t offset,
                             std::uint16_t event) {
  with_semaphore_.insert(event);
  const auto known = std::find_if(semaphores_.begin(), semaphores_.end(), [&](const PlannedSemaphore& one) {
    return one.offset == offset && one.file->identity() == file->identity();
  });
  if (known != semaphores_.end()) {
    if (std::ranges::find(known->events, event) == known->events.end()) known->events.push_back(event);
    return;
  }
  PlannedSemaphore& added =
      semaphores_.emplace_back(PlannedSemaphore{.file = file, .offset = offset, .events = {event}});
  const auto version = version_of(file->path());
  if (version && version->identity == file->identity()) added.version = version;
}

void ProbeSet::remove_semaphore(const elf::ElfFile& file, std::uint64_t offset, std::uint16_t event) {
  for (PlannedSemaphore& one : semaphores_)
    if (one.offset == offset && one.file->identity() == file.identity()) std::erase(one.events, event);
}

void ProbeSet::remove(std::uint16_t event) {
  for (PlannedSemaphore& one : semaphores_) std::erase(one.events, event);
  const auto is_its = [event](const PlannedConsumer& consumer) { return consumer.event == event; };
  std::erase_if(generated_, [event](const GeneratedWish& wish) { return wish.event == event; });
  const auto is_unwanted = [&](PlannedPoint& point) {
    const bool had = std::erase_if(point.consumers, is_its) != 0;
    return had && point.consumers.empty() && point.role == shared::PointRole::probe;
  };
  for (FilePoints& file : files_)
    for (auto* points : {&file.points, &file.ifuncs})
      if (std::erase_if(*points, is_unwanted) != 0) ++file.edition;
}

void ProbeSet::add_hook(plan::Site site) {
  PlannedPoint& point = point_for(std::move(site));
  if (std::exchange(point.role, shared::PointRole::library_hook) != shared::PointRole::library_hook) ++size_;
}

}  // namespace uprobe::control
