#include "engine/process/task_number.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "engine/base/fd.h"
#include "engine/process/processes.h"
#include "engine/target/maps.h"
#include "engine/target/process_list.h"
#include "engine/trace/task_names.h"

namespace uprobe::control {
namespace {

// Strangers end as well, and nobody tells.
constexpr std::size_t kMostProcesses = 4096;
// Others wait while they are read.
constexpr std::size_t kMostThreads = 256;

std::string folder_of(pid_t tid) { return "/proc/" + std::to_string(tid); }

struct Numbers {
  pid_t process;
  std::uint32_t own;
  bool is_here;  // in the tool's namespace
};

// Nothing: it has ended.
std::optional<Numbers> numbers_of(pid_t tid) {
  const auto status = read_file(folder_of(tid) + "/status");
  if (!status) return std::nullopt;
  const std::size_t process = status->find("\nTgid:\t");
  const auto ids = target::namespace_ids(*status);
  if (process == std::string::npos || ids.empty()) return std::nullopt;
  return Numbers{.process = static_cast<pid_t>(std::strtol(status->c_str() + process + 7, nullptr, 10)),
                 .own = static_cast<std::uint32_t>(ids.back()),
                 .is_here = ids.size() == 1};
}

std::optional<SeenTask> task(pid_t tid, std::uint32_t own, std::uint64_t space) {
  auto name = read_file(folder_of(tid) + "/comm");
  if (!name || name->empty()) return std::nullopt;
  name->pop_back();  // the newline
  return SeenTask{.own = own, .space = space, .name = name.take(), .ns = trace::TaskNames::now_ns()};
}

}  // namespace

std::vector<SeenTask> tasks_of(pid_t pid) {
  std::vector<SeenTask> seen;
  const auto first = numbers_of(pid);
  struct stat space {};
  if (!first || (!first->is_here && ::stat((folder_of(pid) + "/ns/pid").c_str(), &space) != 0)) return seen;
  const std::vector<pid_t> threads = first->is_here ? std::vector<pid_t>{pid} : threads_of(pid);
  for (const pid_t tid : threads) {
    if (seen.size() == kMostThreads) break;
    const auto numbers = first->is_here ? first : numbers_of(tid);
    if (!numbers) continue;
    if (auto found = task(tid, numbers->own, first->is_here ? 0 : space.st_ino)) seen.push_back(std::move(*found));
  }
  return seen;
}

bool TracedTasks::has(std::uint32_t tid) {
  const auto numbers = numbers_of(static_cast<pid_t>(tid));
  if (!numbers || !numbers->is_here || numbers->own != tid) return false;
  const std::uint64_t now = trace::TaskNames::now_ns();
  if (processes_.size() >= kMostProcesses) processes_.clear();
  Known& known = processes_[numbers->process];
  if (now < known.until) return known.is_traced;
  const auto maps = read_file(folder_of(static_cast<pid_t>(tid)) + "/maps");
  const auto parsed = maps ? target::parse_maps(*maps) : std::vector<target::Mapping>();
  known.is_traced = std::any_of(parsed.begin(), parsed.end(),
                                [&](const target::Mapping& m) { return m.inode == area_ && is_session_area(m); });
  known.until = now + (known.is_traced ? 1'000'000'000 : 100'000'000);
  return known.is_traced;
}

}  // namespace uprobe::control
