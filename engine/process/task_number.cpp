// SPDX-License-Identifier: MIT
#include "engine/process/task_number.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/process/processes.h"
#include "engine/proxy/memory.h"
#include "engine/target/maps.h"
#include "engine/target/process_list.h"
#include "engine/trace/task_names.h"

namespace uprobe::control {
namespace {

// Other processes end too, and nothing reports it; so the cache is limited.
constexpr std::size_t kMostProcesses = 4096;
// Other requests wait while threads are read.
constexpr std::size_t kMostThreads = 256;

struct Numbers {
  pid_t process;
  std::uint32_t own;
  bool is_here;  // in the tool's namespace
};

// Nothing: the task has ended.
std::optional<Numbers> numbers_in(const Result<std::string>& status) {
  if (!status) return std::nullopt;
  const auto process = static_cast<pid_t>(procfs::number(*status, "Tgid"));
  const auto ids = target::namespace_ids(*status);
  if (process == 0 || ids.empty()) return std::nullopt;
  return Numbers{.process = process, .own = static_cast<std::uint32_t>(ids.back()), .is_here = ids.size() == 1};
}

std::optional<Numbers> numbers_of(pid_t tid) { return numbers_in(procfs::read(tid, "status")); }

// `status`: the text of its status file.
std::optional<SeenTask> seen_as(const shared::TaskNumber& task, pid_t tid, pid_t process, std::string_view status) {
  std::string name = procfs::name_in(status);
  if (name.empty()) name = procfs::name_of(tid);
  if (name.empty()) return std::nullopt;
  return SeenTask{.task = task,
                  .number = static_cast<std::uint32_t>(tid),
                  .process = static_cast<std::uint32_t>(process),
                  .name = std::move(name),
                  .ns = trace::TaskNames::now_ns()};
}

}  // namespace

std::vector<SeenTask> tasks_of(pid_t pid) { return tasks_of(pid, procfs::read(pid, "status")); }

std::vector<SeenTask> tasks_of(pid_t pid, const Result<std::string>& status) {
  std::vector<SeenTask> seen;
  const auto first = numbers_in(status);
  if (!first) return seen;
  if (first->is_here) {
    auto found = seen_as({.process = 0, .thread = first->own}, pid, first->process, *status);
    if (found) seen.push_back(std::move(*found));
    return seen;
  }
  for (const pid_t tid : threads_of(pid)) {
    if (seen.size() == kMostThreads) break;
    const auto its = procfs::read(tid, "status");
    const auto numbers = numbers_in(its);
    if (!numbers) continue;
    const shared::TaskNumber task{.process = static_cast<std::uint32_t>(pid), .thread = numbers->own};
    if (auto found = seen_as(task, tid, numbers->process, *its)) seen.push_back(std::move(*found));
  }
  return seen;
}

std::optional<SeenTask> task_named_by(shared::TaskWords words, pid_t tid) {
  shared::TaskNumber task = shared::task_of(words.process, words.thread);
  if (!task.is_elsewhere()) return std::nullopt;
  const auto status = procfs::read(tid, "status");
  const auto numbers = numbers_in(status);
  if (!numbers) return std::nullopt;
  task.thread = numbers->own;
  return seen_as(task, tid, numbers->process, *status);
}

namespace {

std::optional<ProcessNumber> number_in(pid_t pid, const Result<std::string>& status) {
  const auto numbers = numbers_in(status);
  if (!numbers) return std::nullopt;
  const auto process = numbers->is_here ? 0 : static_cast<std::uint32_t>(pid);
  return ProcessNumber{.own = numbers->own, .words = shared::words_of(process, false)};
}

}  // namespace

std::optional<ProcessNumber> number_of(pid_t pid) { return number_in(pid, procfs::read(pid, "status")); }

void name_process(shared::ProcessBlock& head, pid_t pid) { name_process(head, pid, procfs::read(pid, "status")); }

// The flags belong to the agent: the caller writes them together with the agent's other fields.
void name_process(shared::ProcessBlock& head, pid_t pid, const Result<std::string>& status) {
  const auto number = number_in(pid, status).value_or(ProcessNumber{.own = static_cast<std::uint32_t>(pid)});
  head.pid = head.own_process = number.own;
  head.process_word = number.words.process, head.thread_word = number.words.thread;
  head.flags &= ~shared::kBlockElsewhere;
  if (shared::is_elsewhere(number.words)) head.flags |= shared::kBlockElsewhere;
}

Status tell_process(const target::ProcessFiles& files, Addr block) {
  const auto number = number_of(files.pid());
  if (!number) return ok();
  static_assert(offsetof(shared::ProcessBlock, process_word) == offsetof(shared::ProcessBlock, own_process) + 4);
  static_assert(offsetof(shared::ProcessBlock, thread_word) == offsetof(shared::ProcessBlock, own_process) + 8);
  const std::uint32_t told[] = {number->own, number->words.process, number->words.thread};
  return files.write(block + offsetof(shared::ProcessBlock, own_process), told, sizeof told);
}

bool TracedTasks::has(std::uint32_t tid, bool is_elsewhere) {
  const auto numbers = numbers_of(static_cast<pid_t>(tid));
  if (!numbers || numbers->is_here == is_elsewhere) return false;
  const std::uint64_t now = trace::TaskNames::now_ns();
  if (processes_.size() >= kMostProcesses) processes_.clear();
  Known& known = processes_[numbers->process];
  if (now < known.until) return known.is_traced;
  const auto process = static_cast<pid_t>(tid);
  const auto maps = proxy::read_of(process, procfs::path(process, "maps"));
  const auto parsed = maps ? target::parse_maps(*maps) : std::vector<target::Mapping>();
  known.is_traced = std::any_of(parsed.begin(), parsed.end(),
                                [&](const target::Mapping& m) { return m.inode == area_ && is_session_area(m); });
  known.until = now + (known.is_traced ? 1'000'000'000 : is_elsewhere ? 0 : 100'000'000);
  return known.is_traced;
}

}  // namespace uprobe::control
