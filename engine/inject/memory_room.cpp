// SPDX-License-Identifier: MIT
#include "engine/inject/memory_room.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <mutex>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"

namespace uprobe::control {
namespace {

constexpr std::uint64_t kShare = 16, kNoLimit = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kMostText = 64 << 10;
constexpr int kMostLevels = 64;

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// A file that is not there, or says "max", sets no limit.
std::uint64_t limit_in(const std::string& file) {
  const auto text = read_file(file, kMostText);
  return text ? number_in(*text).value_or(kNoLimit) : kNoLimit;
}

std::uint64_t left_at(const std::string& folder, bool is_first_version) {
  const std::uint64_t limit = is_first_version
                                  ? limit_in(folder + "/memory.limit_in_bytes")
                                  : std::min(limit_in(folder + "/memory.max"), limit_in(folder + "/memory.high"));
  if (limit == kNoLimit) return kNoLimit;
  const auto text = read_file(folder + (is_first_version ? "/memory.usage_in_bytes" : "/memory.current"), kMostText);
  const std::uint64_t used = text ? number_in(*text).value_or(kNoLimit) : kNoLimit;
  return limit - std::min(limit, used);
}

bool names_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == "memory") return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

// "MemAvailable:   12345 kB"
std::uint64_t left_on_machine() {
  constexpr std::string_view kName = "MemAvailable:";
  const auto text = read_file("/proc/meminfo", kMostText);
  const std::size_t at = text ? text->find(kName) : std::string::npos;
  const std::size_t begin = at == std::string::npos ? at : text->find_first_not_of(' ', at + kName.size());
  if (begin == std::string::npos) return 0;
  return number_in(std::string_view(*text).substr(begin)).value_or(0) * 1024;
}

bool promises_more_than_it_has() {
  const auto text = read_file("/proc/sys/vm/overcommit_memory", kMostText);
  return text && (text->starts_with('0') || text->starts_with('1'));
}

// A group that had room has it for a while: programs that start many processes are asked about rarely.
class LastAnswer {
 public:
  bool holds(const std::string& group, std::uint64_t wanted) {
    const std::lock_guard lock(lock_);
    return group == group_ && wanted <= wanted_ && Clock::now() < end_;
  }
  void keep(const std::string& group, std::uint64_t wanted) {
    const std::lock_guard lock(lock_);
    group_ = group, wanted_ = wanted, end_ = Clock::now() + kWhile;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kWhile{1};
  std::mutex lock_;
  std::string group_;
  std::uint64_t wanted_ = 0;
  Clock::time_point end_{};
};

bool has_room(const std::string& proc_cgroup, std::uint64_t wanted) {
  if (!promises_more_than_it_has() || left_on_machine() < wanted) return false;
  const auto group = memory_group(proc_cgroup);
  if (!group) return false;
  const auto left = left_in(*group, group->is_first_version ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup");
  return !left || *left >= wanted;
}

}  // namespace

// "0::/path" is the hierarchy of version 2, "N:memory:/path" that of version 1, which has the memory where both are there.
std::optional<MemoryGroup> memory_group(std::string_view proc_cgroup) {
  std::optional<MemoryGroup> found;
  while (!proc_cgroup.empty()) {
    const std::size_t end = std::min(proc_cgroup.find('\n'), proc_cgroup.size());
    const std::string_view line = proc_cgroup.substr(0, end);
    proc_cgroup.remove_prefix(std::min(end + 1, proc_cgroup.size()));
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const bool is_first_version = names_memory(controllers);
    if (!is_first_version && !controllers.empty()) continue;
    // A path outside of the root that this process sees begins with "/..".
    if (path.empty() || path[0] != '/' || path.starts_with("/..")) return std::nullopt;
    if (is_first_version) return MemoryGroup{true, std::string(path)};
    found = MemoryGroup{false, std::string(path)};
  }
  return found;
}

std::optional<std::uint64_t> left_in(const MemoryGroup& group, const std::string& root) {
  std::uint64_t left = kNoLimit;
  std::string path = group.path;
  if (::access((root + path).c_str(), R_OK | X_OK) != 0) return 0;
  for (int levels = 0; levels < kMostLevels; ++levels) {
    left = std::min(left, left_at(root + path, group.is_first_version));
    if (path.size() <= 1) return left == kNoLimit ? std::nullopt : std::optional(left);
    path.resize(std::max<std::size_t>(path.rfind('/'), 1));
  }
  return 0;
}

bool has_memory_for(pid_t pid, std::uint64_t bytes) {
  static LastAnswer last;
  const std::uint64_t wanted = bytes * kShare;
  const auto group = procfs::read(pid, "cgroup");
  if (!group) return false;
  if (last.holds(*group, wanted)) return true;
  const bool found = has_room(*group, wanted);
  if (found) last.keep(*group, wanted);
  return found;
}

}  // namespace uprobe::control
