// SPDX-License-Identifier: MIT
#include "engine/arm/live_changes.h"

#include <sys/stat.h>
#include <unistd.h>

#include "engine/process/processes.h"

namespace uprobe::control {

// Repeats until a look finds no new process: a child that was forked during a look has its parent's state of that moment. A
// process that ends during the change, or starts another program, is not a failure.
Status LiveChanges::each_process(const std::function<Status(target::Target&, Addr)>& change) {
  constexpr int kMostLooks = 100;
  struct stat status {};
  if (::fstat(area_.fd(), &status) != 0) return system_error("fstat of the session area", errno);
  std::set<pid_t> seen{::getpid()};
  bool found_new = true;
  for (int looks = 0; found_new && looks < kMostLooks; ++looks) {
    found_new = false;
    for (const pid_t pid : processes_mapping(status.st_ino)) {
      if (!seen.insert(pid).second) continue;
      found_new = true;
      auto files = target::ProcessFiles::open(pid);
      if (!files) continue;
      target::RunningTarget target(files.take());
      for (const Addr block : blocks_) {
        if (!is_block(target, block)) continue;
        Status changed = change(target, block);
        if (!changed && is_block(target, block)) return changed;
      }
    }
  }
  return ok();
}

Status LiveChanges::add(const ProbeSet& more) {
  std::set<std::uint16_t> events;
  for (const FilePoints& file : more.files())
    for (const auto* points : {&file.points, &file.ifuncs})
      for (const PlannedPoint& point : *points)
        for (auto consumer = point.consumers.rbegin(); consumer != point.consumers.rend(); ++consumer) {
          probes_.add(point.site, *consumer);
          events.insert(consumer->event);
        }
  for (const PlannedSemaphore& semaphore : more.semaphores())
    for (const std::uint16_t event : semaphore.events) probes_.add_semaphore(semaphore.file, semaphore.offset, event);
  for (const GeneratedWish& wish : more.generated()) probes_.add_generated(wish);
  Status added = each_process([&](auto& target, Addr block) { return armer_.add(target, block, more); });
  if (added) return ok();
  remove(std::vector<std::uint16_t>(events.begin(), events.end()),
         [&](std::uint16_t event) { return events.count(event) == 0; });
  return added;
}

TierCounts LiveChanges::tiers() {
  TierCounts counts;
  static_cast<void>(each_process([&](auto& target, Addr block) {
    static_cast<void>(count_tiers(target, block, counts));
    return ok();
  }));
  return counts;
}

// A process in which they cannot be counted is ending.
void LiveChanges::switch_semaphores(const std::vector<SemaphoreOf>& semaphores, bool on) {
  for (const SemaphoreOf& one : semaphores) {
    if (on)
      probes_.add_semaphore(one.file, one.offset, one.event);
    else
      probes_.remove_semaphore(*one.file, one.offset, one.event);
  }
  static_cast<void>(each_process([&](auto& target, Addr block) {
    static_cast<void>(armer_.count_semaphores(target, block));
    return ok();
  }));
}

// A breakpoint that has to stay, because a foreign breakpoint is in the middle of it or a debugger is there, does no harm.
void LiveChanges::remove(std::span<const std::uint16_t> events, const std::function<bool(std::uint16_t)>& is_live) {
  for (const std::uint16_t event : events) probes_.remove(event);
  static_cast<void>(each_process([&](auto& target, Addr block) {
    static_cast<void>(armer_.remove(target, block, is_live));
    return ok();
  }));
}

}  // namespace uprobe::control
