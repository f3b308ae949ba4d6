// SPDX-License-Identifier: MIT
#include "engine/process/members.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
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
  const auto maps = files->shared_files();
  if (!maps) return maps.error();
  const std::uint64_t device = device_of(plan), live_offset = const_cast<trace::Area&>(area).header().live_offset;
  for (const Mapping& m : *maps) {
    if (!m.shared || m.writable || m.offset != 0 || m.inode != plan.st_ino || m.device != device) continue;
    const auto part = part_at(area, *maps, m.begin + live_offset, device);
    if (!part) continue;
    Member member{std::move(handle), files.take(), m.begin, *part};
    if (member.lives()) return member;
    break;
  }
  return Error{.code = Code::not_found, .text = "process " + std::to_string(pid) + " does not belong to the session"};
}

}  // namespace uprobe::control
