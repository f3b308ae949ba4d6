// SPDX-License-Identifier: MIT
#include "engine/process/members.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>

#include "engine/process/processes.h"

namespace uprobe::control {
namespace {

using target::Mapping;

// Both files are on one file system, the kernel's own.
std::uint64_t device_of(const struct stat& status) {
  return std::uint64_t{major(status.st_dev)} << 32 | minor(status.st_dev);
}

std::optional<std::size_t> part_at(const trace::Area& area, const std::vector<Mapping>& maps, Addr at,
                                   std::uint64_t device) {
  const auto found = std::ranges::lower_bound(maps, at, {}, &Mapping::begin);
  if (found == maps.end() || found->begin != at || !found->shared || found->offset != 0 || found->device != device)
    return std::nullopt;
  for (std::size_t part = 0; part < area.live_count(); ++part)
    if (area.live(part).inode() == found->inode) return part;
  return std::nullopt;
}

struct Place {
  Addr area;
  std::size_t part;
};

std::optional<Place> find_area(const trace::Area& area, const struct stat& plan, const std::vector<Mapping>& maps) {
  const std::uint64_t device = device_of(plan), live_offset = const_cast<trace::Area&>(area).header().live_offset;
  for (const Mapping& m : maps) {
    if (!m.shared || m.writable || m.offset != 0 || m.inode != plan.st_ino || m.device != device) continue;
    if (const auto part = part_at(area, maps, m.begin + live_offset, device)) return Place{m.begin, *part};
  }
  return std::nullopt;
}

// Most processes of a session have it where the last one had it. To look there alone spares the list of all mappings, of which a
// program may have any number.
std::optional<Place> find_at_last_place(const trace::Area& area, const struct stat& plan,
                                        const target::ProcessFiles& files, Addr last) {
  const auto its_plan = last ? files.asked_mapping_at(last) : std::nullopt;
  const auto live =
      its_plan ? files.asked_mapping_at(last + const_cast<trace::Area&>(area).header().live_offset) : std::nullopt;
  return live ? find_area(area, plan, {*its_plan, *live}) : std::nullopt;
}

}  // namespace

bool Member::lives() const {
  pollfd ended{.fd = handle.get(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) == 0;
}

Result<Member> open_member(const trace::Area& area, pid_t pid) {
  struct stat plan {};
  if (::fstat(area.fd(), &plan) != 0) return system_error("fstat of the session area", errno);
  Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!handle) return system_error("pidfd_open", errno);
  auto files = target::ProcessFiles::open(pid);
  if (!files) return files.error();
  static std::atomic<std::uint64_t> last_place{0};  // of whichever session
  auto place = find_at_last_place(area, plan, *files, Addr{last_place.load(std::memory_order_relaxed)});
  if (!place) {
    const auto maps = files->shared_files();
    if (!maps) return maps.error();
    place = find_area(area, plan, *maps);
  }
  if (place) {
    last_place.store(place->area.value, std::memory_order_relaxed);
    Member member{std::move(handle), files.take(), place->area, place->part};
    if (member.lives()) return member;
  }
  return Error{.code = Code::not_found, .text = "process " + std::to_string(pid) + " does not belong to the session"};
}

}  // namespace uprobe::control
