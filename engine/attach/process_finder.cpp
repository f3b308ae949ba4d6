// SPDX-License-Identifier: MIT
#include "engine/attach/process_finder.h"

#include <fnmatch.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>

#include "engine/base/procfs.h"
#include "engine/base/regular_file.h"
#include "engine/base/roles.h"
#include "engine/proxy/memory.h"
#include "engine/target/process_list.h"
#include "engine/target/process_stat.h"

namespace uprobe::control {
namespace {

// So many successive looks check a process, then looks become rarer: each look checks some of the processes in turn.
constexpr std::uint32_t kEager = 4;
constexpr std::uint64_t kTurns = 32, kInEachLook = 8;

bool is_one_of_us(pid_t pid, const target::ProcessStat& stat) {
  return pid == ::getpid() || stat.name == kLauncherName || stat.name == kTracerName || stat.name == kGuardianName;
}

Error no_file(const std::string& path) {
  return Error{.code = Code::usage, .text = "is not a file that a process can map", .where = path};
}

// Searches between the second blank of a line and its path, because a path may contain the same text.
bool maps_object(const std::string& maps, const std::string& shown) {
  for (std::size_t at = maps.find(shown); at != std::string::npos; at = maps.find(shown, at + 1)) {
    const std::size_t line = at == 0 ? 0 : maps.rfind('\n', at - 1) + 1;
    if (std::count(maps.begin() + static_cast<std::ptrdiff_t>(line), maps.begin() + static_cast<std::ptrdiff_t>(at),
                   ' ') == 2)
      return true;
  }
  return false;
}

}  // namespace

// On some file systems the device and inode in /proc/PID/maps are not stat's. So this maps the file and reads the line.
Result<ProcessFinder::Object> ProcessFinder::show(const std::string& path) {
  constexpr std::size_t kPage = 4096;
  auto opened = open_regular(path);
  if (!opened && opened.error().code == Code::refused) return no_file(path);
  if (!opened) return opened.error();
  Object object{.file = std::move(opened->fd), .shown = {}};
  void* const at = ::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, object.file.get(), 0);
  if (at == MAP_FAILED) return no_file(path);
  const auto maps = read_file("/proc/self/maps");
  ::munmap(at, kPage);
  if (!maps) return maps.error();
  char begin[32];
  std::snprintf(begin, sizeof begin, "%08lx-", reinterpret_cast<unsigned long>(at));
  std::istringstream lines(*maps);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(begin)) continue;
    std::istringstream words(line);
    std::string range, rights, offset, device, inode;
    words >> range >> rights >> offset >> device >> inode;
    object.shown = " " + device + " " + inode + " ";
    return object;
  }
  return Error{.code = Code::system, .text = "/proc/self/maps does not show it", .where = path};
}

Result<ProcessFinder> ProcessFinder::open(const Wanted& wanted) {
  ProcessFinder finder;
  finder.names_ = wanted.names;
  for (const std::string& path : wanted.objects) {
    auto object = show(path);
    if (!object) return object.error();
    finder.objects_.push_back(object.take());
  }
  return finder;
}

bool ProcessFinder::matches(pid_t pid, const std::string& name, bool& is_closed) const {
  for (const std::string& pattern : names_)
    if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  if (objects_.empty()) return false;
  const auto maps = proxy::read_of(pid, procfs::path(pid, "maps"));
  is_closed = !maps && (maps.error().err == EACCES || maps.error().err == EPERM);
  return maps && std::any_of(objects_.begin(), objects_.end(),
                             [&](const Object& object) { return maps_object(*maps, object.shown); });
}

void ProcessFinder::put_off(Known& known) const {
  const std::uint64_t rarest = std::max<std::uint64_t>(kTurns, known_.size() / kInEachLook);
  const std::uint32_t doublings = known.looks < kEager ? 0 : std::min(known.looks - kEager + 1, 32u);
  known.next = round_ + std::min(rarest, std::uint64_t{1} << doublings);
}

void ProcessFinder::look_at(pid_t pid, Known& known, std::vector<Candidate>& found) {
  ++known.looks;
  put_off(known);
  const auto stat = target::stat_of(pid);
  if (!stat) return;
  known.is_settled = target::is_kernel_thread(*stat) || target::has_ended(*stat);
  if (known.is_settled || is_one_of_us(pid, *stat) || !matches(pid, stat->name, known.is_closed)) return;
  known.next = 0;
  found.push_back({pid, stat->started, stat->name, ++known.offers});
}

std::vector<Candidate> ProcessFinder::look() {
  std::vector<Candidate> found;
  const auto processes = target::list_processes();
  if (processes.empty()) return found;
  ++round_;
  for (const auto& [pid, entry] : processes) {
    Known& known = known_[pid];
    if (known.entry != entry) known = {.entry = entry};
    known.round = round_;
    if (!known.is_settled && known.next <= round_) look_at(pid, known, found);
  }
  std::erase_if(known_, [this](const auto& one) { return one.second.round != round_; });
  closed_ = static_cast<std::size_t>(
      std::count_if(known_.begin(), known_.end(), [](const auto& one) { return one.second.is_closed; }));
  return found;
}

void ProcessFinder::settle(const Candidate& candidate) {
  if (const auto known = known_.find(candidate.pid); known != known_.end()) known->second.is_settled = true;
}

bool ProcessFinder::is_still(const Candidate& candidate) const {
  const auto stat = target::stat_of(candidate.pid);
  bool is_closed = false;
  return stat && stat->started == candidate.started && matches(candidate.pid, stat->name, is_closed);
}

}  // namespace uprobe::control
